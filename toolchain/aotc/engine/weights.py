"""Weights as external data: out of the graph once, and stored once for all variants."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO

import onnx

from aotc.engine.capture import tensors

# Below this the entry costs more than it saves; ONNX Runtime's own writer gets the same bound.
EXTERNAL_BYTES = 1024
# Pages of a mapping start here, and no SIMD load wants more.
_ALIGN = 4096
_BLOCK = 4 << 20


def externalize(model: onnx.ModelProto, folder: Path, name: str) -> int:
    """Move large initializers of the main graph from `model` into `folder/name`.

    Only `raw_data` is moved.  Returns the bytes written; no file is made where there are none.
    """
    offset = 0
    large = [t for t in model.graph.initializer if len(t.raw_data) >= EXTERNAL_BYTES]
    if not large:
        return 0
    with (folder / name).open("wb") as file:
        for tensor in large:
            offset += file.write(b"\0" * (-offset % _ALIGN))
            length = len(tensor.raw_data)
            file.write(tensor.raw_data)
            _point(tensor, name, offset, length)
            offset += length
    return offset


def _point(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))


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
        _point(tensor, name, offset, length)


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
        for (tensor, offset, length), key in zip(external_tensors(model), keys, strict=True):
            if key not in placed:
                if source is None:
                    raise EOFError("external data is gone")
                name = file_of(key)
                path = folder / name
                with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
                    file.write(b"\0" * (-file.seek(0, os.SEEK_END) % _ALIGN))
                    placed[key] = (name, file.tell())
                    _copy(source, offset, length, file)
            name, start = placed[key]
            _point(tensor, name, start, length)


def keep(model: onnx.ModelProto, data: Path, wanted: Sequence[bool]) -> None:
    """Keep only the `wanted` external tensors of `model` in its file `data`, in order."""
    if all(wanted):
        return
    smaller = data.with_name(f"{data.name}.kept")
    written = 0
    with data.open("rb") as source, smaller.open("wb", buffering=0) as file:
        for (tensor, offset, length), stays in zip(external_tensors(model), wanted, strict=True):
            if stays:
                written += file.write(b"\0" * (-written % _ALIGN))
                _copy(source, offset, length, file)
                _point(tensor, data.name, written, length)
                written += length
    if written:
        smaller.replace(data)
    else:
        smaller.unlink()
        data.unlink()


def places(model: onnx.ModelProto, keys: Sequence[str]) -> dict[str, tuple[str, int]]:
    """File and offset of each external tensor of `model`, by the names `keys` of their contents."""
    found = {}
    for (tensor, offset, _), key in zip(external_tensors(model), keys, strict=True):
        found[key] = (next(p.value for p in tensor.external_data if p.key == "location"), offset)
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
