"""An artifact in a registry as a container: files as ranges of blobs, attestations as referrers.

What is read here is not trusted: manifests are those of their digests, and of blobs nothing is
checked but the structure of tar layers, and that aotc.json is the one that the manifest names: a
digest in a reference would else stand for whatever the registry has with a trusted signature.  Who
verifies hashes the files, as with a folder.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aotc.base.errors import EXIT_NO, AotcError
from aotc.base.files.folders import ATTESTATIONS, MANIFEST, PAYLOAD
from aotc.base.records import record, replace
from aotc.registry.descriptors import MANIFEST as MANIFEST_TYPE
from aotc.registry.descriptors import Descriptor, read_descriptor, read_document
from aotc.registry.references import Reference, parse_reference
from aotc.registry.repository import BlobStream, Repository
from aotc.spec import registry_forms as forms
from aotc.spec.attestation_kinds import BUNDLE_SUFFIX, kind_of
from aotc.spec.codec import Json
from aotc.spec.json import MAX_JSON_BYTES, canonical_json
from aotc.spec.packed_form import colliding_paths, name_problem
from aotc.spec.payload import CHUNK_BYTES, Finding
from aotc.trust import statements
from aotc.trust.container import (
    MAX_BUNDLES,
    MAX_BUNDLES_BYTES,
    MAX_DEPTH,
    MAX_ENTRIES,
    Container,
    Listing,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Files that are read several times, such as documents and graphs, are kept up to this size, and
# all that are kept take at most this much.
_KEPT_FILE_BYTES: Final = 1 << 20
_KEPT_BYTES: Final = 16 << 20
# A tar layer of small files is read at once.
_READ_AT_ONCE_BYTES: Final = 2 * forms.TOGETHER_BYTES
# Of all layers; those of an image are tars of larger files, too, which nobody has vouched for yet.
_ALL_AT_ONCE_BYTES: Final = 32 << 20
# Of a larger one, what is fetched where a header is: more than any, and the end of the layer.
_HEADER_BYTES: Final = 4 << 10
# What is fetched where single fields of a large model are read.
_BLOCK_BYTES: Final = 64 << 10
_MAX_CONFIG_BYTES: Final = 1 << 20
_MAX_NAMES: Final = 200
# An attestation that was removed since it was listed is not there.
_ABSENT: Final = "AOTC-I201"


@record(kw_only=False)
class StoredPiece:
    """A file in a registry: the blob that holds it, its offset in it, and its size in bytes."""

    blob: Descriptor
    offset: int
    size: int


class RegistryContainer(Container):
    """An artifact in a registry.

    A tag is resolved once, when it is opened; `origin` says which manifest that was.  Threads may
    share it.
    """

    def __init__(self, reference: str | Reference, repository: Repository | None = None) -> None:
        """Raises what `parse_reference` and `Repository.resolve` do, and:

        AOTC-I210 if there is something else than an artifact, I207 for a malformed manifest, I211
        for a layer that no artifact has, I213 for paths, I214 for a malformed tar layer, and G012
        if a limit is exceeded.
        """
        if isinstance(reference, str):
            reference = parse_reference(reference)
        self.reference = reference
        self.repository = repository or Repository(reference)
        self._descriptor = None
        self.manifest, content = self.repository.resolve(reference)
        self.origin = f"{reference.repository_name}@{self.manifest.digest}"
        if reference.digest is None:
            what, where = f"the tag is {self.manifest.digest}", str(reference)
            self.findings = (Finding(code="AOTC-I218", what=what, where=where),)
        self.root = Path(f"oci://{self.origin}")
        self._guard = threading.Lock()
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._kept_bytes = 0
        self._manifest: bytes | None = None
        self._at_once_left = _ALL_AT_ONCE_BYTES
        self._problems: list[AotcError] = []
        document = _read_manifest(content, self.manifest, self.origin)
        config = read_descriptor(document.get("config"), f"{self.origin} config")
        self.form, layers = _layers(document, config, self.origin)
        # Nothing here depends on it, but what is told of an artifact is as it was pushed.
        self.repository.read_blob(config, _MAX_CONFIG_BYTES)
        self.layers = tuple(layers)
        self._files = self._read_layers(layers)
        self._add_referrers()

    @property
    def place(self) -> str:
        """The reference with the digest that it had when it was opened."""
        return f"oci://{self.origin}"

    def listing(self, folder: str = "") -> Listing:
        """The files and folders below `folder`; its problems are referrers that are refused."""
        start = f"{folder}/" if folder else ""
        files = {path: piece.size for path, piece in self._files.items() if path.startswith(start)}
        folders = set()
        for path in files:
            while "/" in path[len(start) :]:
                path = path.rpartition("/")[0]
                folders.add(path)
        return Listing(files, frozenset(folders), tuple(self._problems))

    def open(self, path: str) -> RegistryFile:
        """Open a file for reading at any offset; raises AOTC-G006 if it does not exist.

        Of aotc.json raises AOTC-G005 unless it is the one that was pushed.
        """
        piece = self._files.get(path)
        if piece is None:
            raise AotcError("AOTC-G006", "a file of the artifact is missing", where=path)
        content = self._pushed_manifest(piece) if path == MANIFEST else self.kept(piece)
        return RegistryFile(self, piece, content)

    def pieces(self) -> Mapping[str, StoredPiece]:
        """Where each file is, by its path."""
        return dict(self._files)

    def fetch(self, blob: Descriptor, offset: int, length: int) -> bytes:
        """A part of a blob, fewer bytes if the registry has fewer."""
        stream = self.repository.open_blob(blob, offset, length)
        try:
            buffer = memoryview(bytearray(length))
            done = 0
            while done < length and (count := stream.readinto(buffer[done:])):
                done += count
        finally:
            stream.close()
        return bytes(buffer[:done])

    def kept(self, piece: StoredPiece) -> bytes | None:
        """The content of a small file, which is fetched once; None of a larger one."""
        if piece.size > _KEPT_FILE_BYTES:
            return None
        key = (piece.blob.digest, piece.offset)
        with self._guard:
            content = self._kept.get(key)
            if content is not None:
                self._kept.move_to_end(key)
                return content
        content = self.fetch(piece.blob, piece.offset, piece.size)
        self._keep(key, content)
        return content

    def _pushed_manifest(self, piece: StoredPiece) -> bytes:
        """aotc.json, whose sha256 the manifest states, so that it follows from the digest alone."""
        if self._manifest is None:
            if piece.size > MAX_JSON_BYTES:
                raise _limit_exceeded(f"at most {MAX_JSON_BYTES} bytes", str(piece.size), MANIFEST)
            content = self.kept(piece) or self.fetch(piece.blob, piece.offset, piece.size)
            stated, found = self.manifest.annotations.get(forms.ARTIFACT_ID, ""), _sha256(content)
            if found != stated:
                raise AotcError(
                    "AOTC-G005",
                    "the file's bytes are not the ones that were pushed",
                    where=MANIFEST,
                    expected=f"sha256 {stated[:_MAX_NAMES]}, which {self.origin} states",
                    found=f"sha256 {found}",
                )
            self._manifest = content
        return self._manifest

    def _keep(self, key: tuple[str, int], content: bytes) -> None:
        with self._guard:
            if key in self._kept:
                return
            self._kept[key] = content
            self._kept_bytes += len(content)
            while self._kept_bytes > _KEPT_BYTES:
                self._kept_bytes -= len(self._kept.popitem(last=False)[1])

    def _read_layers(self, layers: Iterable[Descriptor]) -> dict[str, StoredPiece]:
        """The files of all layers by path, sorted."""
        found: list[tuple[str, StoredPiece]] = []
        for layer in layers:
            if layer.media_type.endswith(".raw"):
                path = _path_of_raw(layer, self.origin)
                found.append((path, StoredPiece(layer, 0, layer.size)))
            else:
                root = "" if self.form == "modelpack" else f"{forms.IMAGE_ROOT}/"
                found.extend(self._read_tar(layer, root, MAX_ENTRIES - len(found)))
        _check_paths([path for path, _ in found], self.form, self.origin)
        return dict(sorted(found))

    def _read_tar(
        self, layer: Descriptor, root: str, limit: int
    ) -> Iterator[tuple[str, StoredPiece]]:
        is_small = layer.size <= min(_READ_AT_ONCE_BYTES, self._at_once_left)
        self._at_once_left -= layer.size if is_small else 0
        at, held = 0, self.fetch(layer, 0, layer.size if is_small else _HEADER_BYTES)

        def read_at(offset: int, length: int) -> bytes:
            nonlocal at, held
            length = max(0, min(length, layer.size - offset))
            if not at <= offset <= offset + length <= at + len(held):
                more = max(length, min(_HEADER_BYTES, layer.size - offset))
                at, held = offset, self.fetch(layer, offset, more)
            return held[offset - at : offset - at + length]

        try:
            members = forms.read_tar(read_at, layer.size, limit)
        except forms.MalformedTar as error:
            raise AotcError(
                "AOTC-I214",
                "a tar layer is not as artifacts have them",
                where=f"{self.origin} layer {layer.digest}",
                found=str(error),
            ) from None
        for member in members:
            if not member.path.startswith(root):
                raise _path_refusal(member.path, f"is not below {root}", self.origin)
            piece = StoredPiece(layer, member.offset, member.size)
            if is_small and member.size <= forms.ALONE_BYTES:
                content = held[member.offset : member.offset + member.size]
                self._keep((layer.digest, member.offset), content)
            yield member.path[len(root) :], piece

    # Attestations.  Anyone who may push to the repository can add some, so none of them takes the
    # name of another: one of a name that is taken, with other content, gets its digest in its name.

    def _add_referrers(self) -> None:
        listed = self.repository.referrers(self.manifest.digest, forms.BUNDLE_TYPE)
        if len(listed) > MAX_BUNDLES:
            self._problems.append(
                _limit_exceeded(f"at most {MAX_BUNDLES} attestations", str(len(listed)), self.place)
            )
        known = self._bundles_in_layers()
        # By digest: the registry's order, and so that of two runs, may differ.
        for each in sorted(listed, key=lambda found: found.digest)[:MAX_BUNDLES]:
            try:
                name, piece = self._bundle_of(each)
            except AotcError as error:
                if error.exit_status == EXIT_NO:
                    self._problems.append(error)
                elif error.code != _ABSENT:
                    raise
                continue
            if piece.blob.digest in known:
                continue
            known.add(piece.blob.digest)
            if f"{ATTESTATIONS}/{name}" in self._files:
                name = f"{name.removesuffix(BUNDLE_SUFFIX)}-{_digits(piece.blob)}{BUNDLE_SUFFIX}"
            self._files[f"{ATTESTATIONS}/{name}"] = piece
        self._files = dict(sorted(self._files.items()))

    def _bundles_in_layers(self) -> set[str]:
        """The digests of attestations that are in a layer, as in an image, unless too many are."""
        own = {
            path: piece.size
            for path, piece in self._files.items()
            if path.startswith(f"{ATTESTATIONS}/")
        }
        if len(own) > MAX_BUNDLES or sum(own.values()) > MAX_BUNDLES_BYTES:
            return set()
        return {f"sha256:{_sha256(self.read(path, size))}" for path, size in own.items()}

    def _bundle_of(self, listed: Descriptor) -> tuple[str, StoredPiece]:
        """The name and the content of an attestation."""
        reference = replace(self.reference, tag=None, digest=listed.digest)
        descriptor, content = self.repository.resolve(reference)
        where = f"{self.reference.repository_name}@{listed.digest}"
        document = _read_manifest(content, descriptor, where)
        subject = read_descriptor(document.get("subject"), f"{where} subject")
        if subject.digest != self.manifest.digest:
            raise AotcError(
                "AOTC-I215",
                "an attestation that the registry lists belongs to something else",
                where=where,
                expected=self.manifest.digest,
                found=subject.digest,
            )
        layers = _listed(document, where)
        if len(layers) != 1 or layers[0].media_type != forms.BUNDLE_TYPE:
            found = ", ".join(layer.media_type for layer in layers)
            raise _unknown_layer(where, f"one of type {forms.BUNDLE_TYPE}", found)
        layer = layers[0]
        name = layer.annotations.get(forms.TITLE, "")
        if "/" in name or not name.endswith(BUNDLE_SUFFIX) or name_problem(name):
            kind = kind_of(descriptor.annotations.get(forms.BUNDLE_PREDICATE, ""))
            usage = kind.usage if kind is not None else "attestation"
            name = f"{usage}-{_digits(layer)}{BUNDLE_SUFFIX}"
        return name, StoredPiece(layer, 0, layer.size)


class RegistryFile(RawIOBase):
    """One file of an artifact in a registry; it has no descriptor, so `fileno` raises OSError.

    Bytes that follow each other are streamed, in requests that end where chunks with digests of
    their own end, so that whoever reads a chunk has read all that was asked for.
    """

    def __init__(
        self, container: RegistryContainer, piece: StoredPiece, content: bytes | None
    ) -> None:
        """`content` is that of the file, where it is in memory already."""
        self.size = piece.size
        self.crc32: int | None = None
        self._container = container
        self._piece = piece
        self._position = 0
        self._content = content
        self._block, self._block_start = b"", 0
        self._stream: BlobStream | None = None
        # Where the stream is, and where it ends.
        self._at = self._end = 0

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def tell(self) -> int:
        """The position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Set the position of the next read, in bytes."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into `buffer`; returns the number of bytes, 0 at the end."""
        view = memoryview(buffer).cast("B")
        view = view[: max(0, self.size - self._position)]
        if not view:
            return 0
        if self._content is not None:
            count = _copy(self._content, self._position, view)
        elif self._stream is None and len(view) < _BLOCK_BYTES:
            count = self._read_block(view)
        else:
            count = self._read_stream(view)
        self._position += count
        return count

    def close(self) -> None:
        """End the transfer."""
        self._stop()
        super().close()

    def _read_block(self, view: memoryview) -> int:
        start = self._position - self._position % _BLOCK_BYTES
        if not self._block or start != self._block_start:
            length = min(_BLOCK_BYTES, self.size - start)
            self._block_start = start
            self._block = self._container.fetch(
                self._piece.blob, self._piece.offset + start, length
            )
        return _copy(self._block, self._position - start, view)

    def _read_stream(self, view: memoryview) -> int:
        if self._stream is not None and self._at != self._position:
            self._stop()
            if len(view) < _BLOCK_BYTES:
                return self._read_block(view)
        if self._stream is None or self._at == self._end:
            self._stop()
            self._at = self._position
            self._end = min(self.size, (self._at // CHUNK_BYTES + 1) * CHUNK_BYTES)
            self._stream = self._container.repository.open_blob(
                self._piece.blob, self._piece.offset + self._at, self._end - self._at
            )
        count = self._stream.readinto(view[: self._end - self._at])
        self._at += count
        if self._at == self._end:
            self._stop()
        return count

    def _stop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _digits(blob: Descriptor) -> str:
    """The first digits of a digest, which tell one attestation from another."""
    return blob.digest.removeprefix("sha256:")[:16]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _copy(content: bytes, position: int, view: memoryview) -> int:
    part = content[position : position + len(view)]
    view[: len(part)] = part
    return len(part)


def attach(repository: Repository, subject: Descriptor, name: str, bundle: bytes) -> Descriptor:
    """Add an attestation to what a repository holds, as a referrer of the manifest `subject`.

    `name` is that of its file, such as `oms.sigstore.json`.  The same attestation has the same
    digest each time, and nothing else is changed.  Raises AOTC-G004 for a malformed bundle, and
    what `Repository` does.
    """
    predicate_type = statements.read_unverified(bundle).predicate_type
    empty = put_bytes(repository, forms.EMPTY_TYPE, forms.EMPTY)
    layer = put_bytes(repository, forms.BUNDLE_TYPE, bundle)
    document: dict[str, Json] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": forms.BUNDLE_TYPE,
        "config": empty.to_json(),
        "layers": [replace(layer, annotations={forms.TITLE: name}).to_json()],
        "subject": replace(subject, annotations={}, artifact_type=None).to_json(),
        "annotations": {
            forms.BUNDLE_CONTENT: forms.DSSE,
            forms.BUNDLE_PREDICATE: predicate_type,
        },
    }
    return repository.put_manifest(canonical_json(document), MANIFEST_TYPE)


def put_bytes(repository: Repository, media_type: str, content: bytes) -> Descriptor:
    """Store a small blob unless it is there."""
    from io import BytesIO

    digest = f"sha256:{_sha256(content)}"
    repository.put_blob(digest, len(content), lambda: BytesIO(content))
    return Descriptor(media_type=media_type, digest=digest, size=len(content))


# Manifests, read strictly as far as they are used.


def _read_manifest(content: bytes, descriptor: Descriptor, where: str) -> Mapping[str, Json]:
    """A manifest as a mapping; raises AOTC-I210 for an index, and I207 if it is malformed."""
    if descriptor.media_type != MANIFEST_TYPE:
        raise AotcError(
            "AOTC-I210",
            "this is no manifest of an artifact",
            where=where,
            expected=MANIFEST_TYPE,
            found=descriptor.media_type[:_MAX_NAMES],
        )
    return read_document(content, where)


def _layers(
    document: Mapping[str, Json], config: Descriptor, where: str
) -> tuple[forms.Form, list[Descriptor]]:
    """The form of an artifact and its layers, without those of a base image."""
    layers = _listed(document, where)
    is_model = document.get("artifactType") == forms.MODEL_TYPE
    if is_model and config.media_type == forms.MODEL_CONFIG_TYPE:
        form: forms.Form = "modelpack"
    elif config.media_type == forms.IMAGE_CONFIG_TYPE:
        form = "image"
        own = [index for index, layer in enumerate(layers) if forms.LAYER in layer.annotations]
        if not own:
            raise AotcError(
                "AOTC-I210",
                "this image has no layer of an artifact",
                where=where,
                expected=f"layers with the annotation {forms.LAYER}, as 'aotc push' writes them",
            )
        layers = layers[own[0] :]
    else:
        raise AotcError(
            "AOTC-I210",
            "this is neither a model as ModelPack describes it nor an image",
            where=where,
            expected=f"{forms.MODEL_CONFIG_TYPE} or {forms.IMAGE_CONFIG_TYPE}",
            found=_short(document.get("artifactType") or config.media_type),
        )
    limit = forms.MAX_LAYERS[form]
    if len(layers) > limit:
        raise _limit_exceeded(f"at most {limit} layers", str(len(layers)), where)
    for index, layer in enumerate(layers):
        _check_layer(layer, form, f"{where} layers[{index}]")
    return form, layers


def _check_layer(layer: Descriptor, form: forms.Form, where: str) -> None:
    if form == "image":
        known = layer.media_type == forms.IMAGE_LAYER_TYPE and forms.LAYER in layer.annotations
        expected = f"{forms.IMAGE_LAYER_TYPE} with the annotation {forms.LAYER}"
    else:
        known = layer.media_type in (forms.TOGETHER_TYPE, *forms.RAW_TYPES.values())
        expected = f"{forms.TOGETHER_TYPE} or a type of ModelPack that ends in .raw"
    if not known:
        raise _unknown_layer(where, expected, layer.media_type[:_MAX_NAMES])


def _path_of_raw(layer: Descriptor, where: str) -> str:
    path = layer.annotations.get(forms.FILE_PATH, "")
    title = layer.annotations.get(forms.TITLE, path)
    if title != path:
        raise _path_refusal(path, f"has the title {title[:_MAX_NAMES]!r}", where)
    return path


def _check_paths(paths: list[str], form: forms.Form, where: str) -> None:
    """Raise AOTC-I213 and G012 for paths that no artifact has."""
    folders: set[str] = set()
    for path in paths:
        if problem := name_problem(path):
            raise _path_refusal(path, problem, where)
        is_bundle = path.startswith(f"{ATTESTATIONS}/") and path.count("/") == 1
        if not path.startswith(f"{PAYLOAD}/") and not (form == "image" and is_bundle):
            raise _path_refusal(path, "is outside of an artifact", where)
        if path.count("/") > MAX_DEPTH:
            raise _limit_exceeded(f"folders {MAX_DEPTH} deep", path[:_MAX_NAMES], where)
        while "/" in path:
            path = path.rpartition("/")[0]
            folders.add(path)
    if len(paths) + len(folders) > MAX_ENTRIES:
        raise _limit_exceeded(f"at most {MAX_ENTRIES} files and folders", "more", where)
    for one, other in colliding_paths(paths):
        raise _path_refusal(
            one, f"is the same as {other[:_MAX_NAMES]!r} on some file system", where
        )


def _listed(document: Mapping[str, Json], where: str) -> list[Descriptor]:
    """The layers of a manifest; raises AOTC-I207, and I211 for one that is kept elsewhere."""
    found = document.get("layers")
    layers = []
    for index, data in enumerate(found if isinstance(found, list) else [found]):
        place = f"{where} layers[{index}]"
        layers.append(read_descriptor(data, place))
        if isinstance(data, dict) and data.get("urls"):
            raise _unknown_layer(place, "content of the same repository", _short(data["urls"]))
    return layers


def _unknown_layer(where: str, expected: str, found: str) -> AotcError:
    what = "a layer is of a kind that no artifact has"
    return AotcError("AOTC-I211", what, where=where, expected=expected, found=found)


def _path_refusal(path: str, problem: str, where: str) -> AotcError:
    return AotcError(
        "AOTC-I213",
        "a layer has a path that no artifact has",
        where=where,
        expected=f"{PAYLOAD}/… or {ATTESTATIONS}/…, each once",
        found=f"{path[:_MAX_NAMES]!r} {problem}",
    )


def _limit_exceeded(expected: str, found: str, where: str) -> AotcError:
    what = "the artifact exceeds the limits"
    return AotcError("AOTC-G012", what, where=where, expected=expected, found=found)


def _short(value: Json) -> str:
    return str(value)[:_MAX_NAMES]
