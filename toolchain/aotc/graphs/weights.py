"""Weights as external data: out of the graph once, and stored once for all variants."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO, NamedTuple

import onnx

from aotc.graphs.capture import tensors

# Below this the entry costs more than it saves; ONNX Runtime's own writer gets the same bound.
EXTERNAL_BYTES = 1024
# Pages of a mapping start here, and no SIMD load wants more.
_ALIGN = 4096
_BLOCK = 4 << 20
# Entries of external data that ONNX Runtime adds for weights it has packed for its kernels.
PACKED = "prepacked_"


class Packed(NamedTuple):
    """A tensor as one kernel packed it: offset, length and a flag of each part in its file.

    `name` is ONNX Runtime's: the kernel's, with a hash of the packed bytes.
    """

    name: str
    parts: tuple[tuple[int, int, str], ...]

    def moved(self, offsets: Sequence[int]) -> Packed:
        """The same parts at other offsets."""
        parts = zip(offsets, self.parts, strict=True)
        return Packed(self.name, tuple((at, length, flag) for at, (_, length, flag) in parts))

    def text(self) -> str:
        """As ONNX Runtime writes it: `NAME|OFFSET;LENGTH;FLAG`."""
        return "|".join((self.name, *(f"{at};{length};{flag}" for at, length, flag in self.parts)))


def packed_of(tensor: onnx.TensorProto) -> list[Packed]:
    """What is packed of an external tensor."""
    found = []
    for pair in tensor.external_data:
        if pair.key.startswith(PACKED):
            name, *parts = pair.value.split("|")
            cut = [part.split(";", 2) for part in parts]
            found.append(Packed(name, tuple((int(a), int(b), c) for a, b, c in cut)))
    return found


def externalize(model: onnx.ModelProto, folder: Path, name: str) -> int:
    """Move large initializers of the main graph from `model` to the end of `folder/name`.

    Only `raw_data` is moved.  Returns the size of the file; none is made where there are none.
    """
    large = [t for t in model.graph.initializer if len(t.raw_data) >= EXTERNAL_BYTES]
    if not large:
        return 0
    with (folder / name).open("ab") as file:
        offset = file.tell()
        for tensor in large:
            offset += file.write(b"\0" * (-offset % _ALIGN))
            length = len(tensor.raw_data)
            file.write(tensor.raw_data)
            _point(tensor, name, offset, length)
            offset += length
    return offset


def _point(
    tensor: onnx.TensorProto, location: str, offset: int, length: int, packed: Sequence[Packed] = ()
) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    for index, each in enumerate(packed):
        tensor.external_data.add(key=f"{PACKED}{index}", value=each.text())


def external_tensors(model: onnx.ModelProto) -> Iterator[tuple[onnx.TensorProto, int, int]]:
    """Each external tensor of `model` with its offset and length, in bytes.

    ONNX Runtime externalises the initializers of control-flow bodies as well.
    """
    for tensor in tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entry = {pair.key: pair.value for pair in tensor.external_data}
            yield tensor, int(entry.get("offset", "0")), int(entry["length"])


def adopt(model: onnx.ModelProto, data: Path, folder: Path, name: str) -> None:
    """Make `data`, the external file of `model`, the file `folder/name`, without copying it."""
    if data.exists():
        data.rename(folder / name)
    for tensor, offset, length in external_tensors(model):
        _point(tensor, name, offset, length, packed_of(tensor))


def digests(model: onnx.ModelProto, data: Path, wanted: Sequence[bool]) -> list[str]:
    """sha256 of each `wanted` external tensor of `model`, in order, and else an empty text.

    `data` is its external file.
    """
    if not any(wanted):
        return [""] * len(wanted)
    with data.open("rb") as source:
        return [
            _digest(source, offset, length) if asked else ""
            for (_, offset, length), asked in zip(external_tensors(model), wanted, strict=True)
        ]


def place(
    model: onnx.ModelProto,
    data: Path,
    keys: Sequence[str],
    folder: Path,
    file_of: Callable[[str], str],
    placed: dict[str, tuple[str, int]],
) -> None:
    """Copy the external tensors of `model` from `data` to where `file_of` says.

    `keys` name the tensors' contents, in order: equal names, equal bytes.  `placed` holds file and
    offset of what lies in `folder` already, by name, and grows; that is pointed at, not copied.
    """
    with ExitStack() as stack:
        source = stack.enter_context(data.open("rb")) if data.exists() else None

        def placed_at(key: str, name: str, offset: int, length: int) -> tuple[str, int]:
            if key not in placed:
                if source is None:
                    raise EOFError("external data is gone")
                path = folder / name
                with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
                    file.write(b"\0" * (-file.seek(0, os.SEEK_END) % _ALIGN))
                    placed[key] = (name, file.tell())
                    _copy(source, offset, length, file)
            return placed[key]

        for (tensor, offset, length), key in zip(external_tensors(model), keys, strict=True):
            # What is packed of a tensor has to stand in the tensor's file.
            name, start = placed_at(key, file_of(key), offset, length)
            packed = [
                each.moved(
                    [
                        placed_at(f"{key} {each.name} {index}", name, *part[:2])[1]
                        for index, part in enumerate(each.parts)
                    ]
                )
                for each in packed_of(tensor)
            ]
            _point(tensor, name, start, length, packed)


def keep(model: onnx.ModelProto, data: Path, wanted: Sequence[bool]) -> None:
    """Keep only the `wanted` external tensors of `model` in its file `data`, in order."""
    if all(wanted):
        return
    smaller = data.with_name(f"{data.name}.kept")
    written = 0
    with data.open("rb") as source, smaller.open("wb", buffering=0) as file:

        def kept_at(offset: int, length: int) -> int:
            nonlocal written
            written += file.write(b"\0" * (-written % _ALIGN))
            _copy(source, offset, length, file)
            written += length
            return written - length

        for (tensor, offset, length), stays in zip(external_tensors(model), wanted, strict=True):
            if stays:
                start = kept_at(offset, length)
                packed = [
                    each.moved([kept_at(*part[:2]) for part in each.parts])
                    for each in packed_of(tensor)
                ]
                _point(tensor, data.name, start, length, packed)
    if written:
        smaller.replace(data)
    else:
        smaller.unlink()
        data.unlink()


def places(model: onnx.ModelProto, keys: Sequence[str]) -> dict[str, tuple[str, int]]:
    """File and offset of all that `place` would place for `model`, by the names of contents."""
    found = {}
    for (tensor, offset, _), key in zip(external_tensors(model), keys, strict=True):
        name = next(p.value for p in tensor.external_data if p.key == "location")
        found[key] = (name, offset)
        for each in packed_of(tensor):
            for index, part in enumerate(each.parts):
                found[f"{key} {each.name} {index}"] = (name, part[0])
    return found


def locations(model: onnx.ModelProto) -> tuple[str, ...]:
    """Names of the external files that `model` refers to, sorted."""
    found = {
        pair.value
        for tensor, _, _ in external_tensors(model)
        for pair in tensor.external_data
        if pair.key == "location"
    }
    return tuple(sorted(found))


def copy_ranges(
    source: BinaryIO, ranges: Sequence[tuple[int, int]], target: RawIOBase
) -> dict[tuple[int, int], int]:
    """Append (offset, length) parts of `source` to the empty `target`: where each begins there."""
    moved: dict[tuple[int, int], int] = {}
    written = 0
    for offset, length in ranges:
        written += target.write(b"\0" * (-written % _ALIGN)) or 0
        moved[offset, length] = written
        _copy(source, offset, length, target)
        written += length
    return moved


def move(model: onnx.ModelProto, name: str, moved: Mapping[tuple[int, int], int]) -> None:
    """Point the external tensors of `model` in the file `name` at their new places there."""
    for tensor, offset, length in external_tensors(model):
        if any(p.key == "location" and p.value == name for p in tensor.external_data):
            _point(tensor, name, moved[offset, length], length)


def gather(model: onnx.ModelProto, folder: Path, target: Path) -> None:
    """Copy all external tensors of `model`, whose files are in `folder`, into the file `target`."""
    written = 0
    with target.open("wb", buffering=0) as file:
        for tensor in tensors(model):
            if tensor.data_location != onnx.TensorProto.EXTERNAL:
                continue
            entry = {pair.key: pair.value for pair in tensor.external_data}
            with (folder / entry["location"]).open("rb") as source:
                offset = int(entry.get("offset", "0"))
                length = int(entry.get("length", "0")) or source.seek(0, 2) - offset
                written += file.write(b"\0" * (-written % _ALIGN))
                _copy(source, offset, length, file)
            _point(tensor, target.name, written, length)
            written += length
    if not written:
        target.unlink()


def _blocks(source: BinaryIO, offset: int, length: int) -> Iterator[bytes]:
    source.seek(offset)
    while length:
        block = source.read(min(length, _BLOCK))
        if not block:
            raise EOFError("external data ends early")
        length -= len(block)
        yield block


def _digest(source: BinaryIO, offset: int, length: int) -> str:
    digest = hashlib.sha256()
    for block in _blocks(source, offset, length):
        digest.update(block)
    return digest.hexdigest()


def _copy(source: BinaryIO, offset: int, length: int, target: RawIOBase) -> None:
    """Append to the unbuffered `target`; within the kernel where it can."""
    while length and hasattr(os, "copy_file_range"):
        try:
            count = os.copy_file_range(source.fileno(), target.fileno(), length, offset)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
                raise
            break
        if not count:
            raise EOFError("external data ends early")
        offset, length = offset + count, length - count
    for block in _blocks(source, offset, length):
        target.write(block)
