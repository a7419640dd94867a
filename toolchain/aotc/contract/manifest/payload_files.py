"""Files of a payload, fixtures among them, as the manifest lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds, Pattern
from aotc.records import field, record

# Relative, forward slashes, no empty, '.' or '..' part.
PayloadPath = Annotated[
    str, Pattern(r"(?!\.{1,2}(/|$))[^/\\\x00-\x1f]+(/(?!\.{1,2}(/|$))[^/\\\x00-\x1f]+)*")
]
Sha256 = Annotated[str, Pattern(r"[0-9a-f]{64}")]
# As long as a file's name may be, and shown as it is.
NAME = r"[^\x00-\x1f\x7f/]+"
# Names that a build makes up, and that folders have.
PlainName = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")]
FixtureName = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")]
# Two threads that hash 100 MB share it evenly only where chunks are small.
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
        tuple[Sha256, ...], "sha256 of each 16 MiB, for files larger than that; the last is shorter"
    ] = ()


@record
class FixtureTensor:
    """One array of a fixture: a `.npy` file, or JSON text for strings, sequences and maps."""

    name: str
    path: PayloadPath


@record
class Fixture:
    """Golden inputs and the reference's outputs."""

    name: FixtureName
    origin: Literal["generated", "user"]
    sizes: Annotated[Mapping[str, int], "of the dims"] = field(default_factory=dict)
    inputs: tuple[FixtureTensor, ...]
    outputs: tuple[FixtureTensor, ...]
