"""An artifact in an OCI registry: its two forms, their media types, and the bytes of their layers.

`modelpack` is a model of the CNCF's ModelPack specification (v0.0.7): each larger file of the
payload is a layer of its own, byte for byte, so that the layer's digest is the digest that is
signed, and weights are stored once for all artifacts that share them; small files are together in
tar layers.  `image` is an OCI image (image specification 1.1): the same files in tar layers, one
larger file a layer, below `/models`, and as its last layer the attestations that the artifact had,
so that who has the image alone can verify it.  Both have the attestations as referrers, too.

Nothing depends on times, users or the machine: an artifact has the same digests wherever it is
pushed from.  A tar layer is accepted only if it is exactly what is defined here:

    for each file, in the order of the paths in UTF-8:
      header           ustar, regular file, mode 0644, owner 0:0 without names, time 0; before it a
                       pax header (type x) with path or size, only where ustar cannot hold them
      the file's content, then zero bytes up to a multiple of 512
    1024 zero bytes
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable
from typing import Final, Literal, NamedTuple, get_args

Form = Literal["modelpack", "image"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)

EMPTY_TYPE: Final = "application/vnd.oci.empty.v1+json"
EMPTY: Final = b"{}"

MODEL_TYPE: Final = "application/vnd.cncf.model.manifest.v1+json"
MODEL_CONFIG_TYPE: Final = "application/vnd.cncf.model.config.v1+json"
_MODEL_LAYER: Final = "application/vnd.cncf.model."
RAW_TYPES: Final = {
    role: f"{_MODEL_LAYER}{kind}.v1.raw"
    for role, kind in (
        ("package", "weight.config"),
        ("model", "weight"),
        ("weights", "weight"),
        ("ep-context", "weight"),
        ("fixture", "dataset"),
        ("custom-ops", "code"),
    )
}
"""The media type of a layer that is one file, by the file's role in the manifest."""
TOGETHER_TYPE: Final = f"{_MODEL_LAYER}weight.config.v1.tar"

IMAGE_CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
IMAGE_LAYER_TYPE: Final = "application/vnd.oci.image.layer.v1.tar"
IMAGE_ROOT: Final = "models"
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""Architectures as images name them."""

FILE_PATH: Final = "org.cncf.model.filepath"
TITLE: Final = "org.opencontainers.image.title"
LAYER: Final = "aotc.layer"
"""On a layer of an image that belongs to the artifact; those without are of the base image."""
PAYLOAD_LAYER: Final = "payload"
ATTESTATIONS_LAYER: Final = "attestations"
ARTIFACT_ID: Final = "aotc.artifact.id"
"""On a manifest: the sha256 (hex) of aotc.json, so that the manifest's digest vouches for it."""

# https://github.com/sigstore/cosign/blob/main/specs/BUNDLE_SPEC.md
BUNDLE_TYPE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
BUNDLE_CONTENT: Final = "dev.sigstore.bundle.content"
BUNDLE_PREDICATE: Final = "dev.sigstore.bundle.predicateType"
DSSE: Final = "dsse-envelope"

# A smaller file costs more as a layer than its bytes: a request, and a line of the manifest.
ALONE_BYTES: Final = 64 << 10
# Of files in one tar layer, which is made and read in memory.
TOGETHER_BYTES: Final = 4 << 20
# A manifest of 4 MiB holds as many with the longest paths; Docker takes 127 layers of an image.
MAX_LAYERS: Final = {"modelpack": 1000, "image": 100}
MAX_BASE_LAYERS: Final = 27

BLOCK: Final = 512
END: Final = bytes(2 * BLOCK)
# The longest pax header: a path of 1024 bytes, a size, and what surrounds them.
_MAX_EXTENSION: Final = 4 * BLOCK
_PATH: Final = re.compile(rb"(?:^|\n)\d{1,4} path=([^\n]{0,1024})\n")
_SIZE: Final = re.compile(rb"(?:^|\n)\d{1,2} size=([0-9]{1,19})\n")


class TarMember(NamedTuple):
    """A file in a tar layer: its path, its size, and where its content begins (bytes)."""

    path: str
    size: int
    offset: int


class MalformedTar(Exception):
    """The bytes are not those of a tar layer as it is defined here; the text says what differs."""


def tar_header(path: str, size: int) -> bytes:
    """The bytes before the content of a file."""
    member = tarfile.TarInfo(path)
    member.size = size
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def tar_padding(size: int) -> bytes:
    """The bytes after the content of a file of `size` bytes."""
    return bytes(-size % BLOCK)


def read_tar(read_at: Callable[[int, int], bytes], size: int, limit: int) -> list[TarMember]:
    """The files of a tar layer of `size` bytes, at most `limit`; contents are not read.

    `read_at` gives the bytes at an offset, fewer at the end.  Raises MalformedTar.
    """
    found: list[TarMember] = []
    place = 0
    while True:
        first = read_at(place, BLOCK)
        if first == END[:BLOCK]:
            break
        path, length = _stated(first, place, read_at)
        header = tar_header(path, length)
        if read_at(place, len(header)) != header:
            raise MalformedTar(f"the header of {path!r} at byte {place} is not as it must be")
        if len(found) >= limit:
            raise MalformedTar(f"more than {limit} files")
        content = place + len(header)
        found.append(TarMember(path, length, content))
        place = content + length
        padding = tar_padding(length)
        if place + len(padding) + len(END) > size:
            raise MalformedTar(f"{path!r} is longer than the layer")
        if padding and read_at(place, len(padding)) != padding:
            raise MalformedTar(f"the bytes after {path!r} are not zero")
        place += len(padding)
    if place + len(END) != size or read_at(place, len(END)) != END:
        raise MalformedTar(f"the files end at byte {place}, and the layer at {size}")
    if sorted(found, key=lambda member: member.path.encode()) != found:
        raise MalformedTar("the files are not in the order of their paths")
    return found


def _stated(first: bytes, place: int, read_at: Callable[[int, int], bytes]) -> tuple[str, int]:
    """The path and the size that a header states, whose first block is given."""
    path, size, extension = first[:100].rstrip(b"\0"), _octal(first), b""
    if first[156:157] == b"x":
        if size > _MAX_EXTENSION:
            raise MalformedTar(f"a pax header of {size} bytes at byte {place}")
        extension = read_at(place + BLOCK, size)
        block = read_at(place + BLOCK + size + len(tar_padding(size)), BLOCK)
        path, size = block[:100].rstrip(b"\0"), _octal(block)
    if stated := _PATH.search(extension):
        path = stated[1]
    if stated := _SIZE.search(extension):
        size = int(stated[1])
    try:
        return path.decode("utf-8"), size
    except UnicodeDecodeError:
        raise MalformedTar(f"a path that is not UTF-8 at byte {place}") from None


def _octal(block: bytes) -> int:
    stated = re.fullmatch(rb"([0-7]{1,11})[\0 ]*", block[124:136])
    if stated is None:
        raise MalformedTar("something that is no header of a file")
    return int(stated[1], 8)
