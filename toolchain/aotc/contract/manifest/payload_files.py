"""Files of a payload, fixtures included, as the manifest lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds, Pattern
from aotc.records import field, record

# Relative, with forward slashes, and without an empty, '.' or '..' part.
PayloadPath = Annotated[
    str, Pattern(r"(?!\.{1,2}(/|$))[^/\\\x00-\x1f]+(/(?!\.{1,2}(/|$))[^/\\\x00-\x1f]+)*")
]
Sha256 = Annotated[str, Pattern(r"[0-9a-f]{64}")]
# At most as long as a file name can be, and printable as it is.
NAME = r"[^\x00-\x1f\x7f/]+"
# Names that a build generates, and uses for folders.
PlainName = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")]
FixtureName = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")]
# Small enough for two threads to share 100 MB evenly.
CHUNK_BYTES = 16 << 20

Role = Literal["package", "model", "weights", "fixture", "ep-context"]


@record
class FileEntry:
    """One payload file other than aotc.json."""

    path: PayloadPath
    size: Annotated[int, Bounds(0)]
    sha256: Sha256
    role: Role
    chunks: Annotated[
        tuple[Sha256, ...], "sha256 of each 16 MiB of a larger file; the last chunk may be shorter"
    ] = ()


@record
class FixtureTensor:
    """One array of a fixture: a `.npy` file, or JSON text for strings, sequences and maps."""

    name: str
    path: PayloadPath


@record
class Fixture:
    """Golden inputs, and the outputs of the reference for them."""

    name: FixtureName
    origin: Literal["generated", "user"]
    sizes: Annotated[Mapping[str, int], "by dim"] = field(default_factory=dict)
    without: Annotated[
        tuple[PlainName, ...], "variants that were not compared with it, and are not judged by it"
    ] = ()
    inputs: tuple[FixtureTensor, ...]
    outputs: tuple[FixtureTensor, ...]
