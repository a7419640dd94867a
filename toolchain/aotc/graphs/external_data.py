"""A model's external data: where its files are, and checks before they are read."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import onnx

from aotc.contract.manifest.source import ExternalFile
from aotc.engine.file_digest import file_sha256
from aotc.errors import AotcError

_NARROW_BITS: dict[int, int] = {
    onnx.TensorProto.INT2: 2,
    onnx.TensorProto.UINT2: 2,
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.UINT4: 4,
    onnx.TensorProto.FLOAT4E2M1: 4,
}


def path_with_data(tensors: Iterable[onnx.TensorProto], path: Path) -> Path:
    """`path`, or its target if it is a link and the external data is there.

    Like ONNX Runtime: external data next to the link comes first.
    """
    for tensor in tensors:
        for pair in tensor.external_data:
            if pair.key == "location" and os.path.lexists(path.parent / pair.value):
                return path
    return path.resolve()


def external_files(tensors: Iterable[onnx.TensorProto], folder: Path) -> tuple[ExternalFile, ...]:
    """Check every file in `folder` that `tensors` refer to, and compute its digest.

    Raises AOTC-I003 (missing), I004 (truncated), I005 (outside the folder), I006 (link).
    """
    ends: dict[str, int] = {}
    for tensor in tensors:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entry = {pair.key: pair.value for pair in tensor.external_data}
        location = entry.get("location", "")
        try:
            offset = int(entry.get("offset", "0"))
            length = int(entry.get("length", "0")) or tensor_bytes(tensor)
        except ValueError:
            offset = length = -1
        if offset < 0 or length < 0:
            raise AotcError(
                "AOTC-I004",
                "offset or length is not a valid size",
                where=f"{tensor.name} in {location}",
            )
        ends[location] = max(ends.get(location, 0), offset + length)
    return tuple(_external_file(folder, location, end) for location, end in sorted(ends.items()))


def _external_file(folder: Path, location: str, end: int) -> ExternalFile:
    parts = PurePosixPath(location.replace("\\", "/"))
    if not location or parts.is_absolute() or ".." in parts.parts or "\0" in location:
        raise AotcError(
            "AOTC-I005", "external data lies outside the model's folder", where=repr(location)
        )
    path = folder
    for part in parts.parts:
        path = path / part
        if path.is_symlink():
            raise AotcError("AOTC-I006", "external data is a symbolic link", where=str(path))
    if not path.exists():
        raise AotcError("AOTC-I003", "external data file is missing", where=str(path))
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise AotcError(
            "AOTC-I006",
            "external data is not a plain file with one hard link",
            where=str(path),
            expected="a plain file with 1 hard link",
            found=f"{status.st_nlink} hard links"
            if stat.S_ISREG(status.st_mode)
            else "a folder or special file",
        )
    if status.st_size < end:
        raise AotcError(
            "AOTC-I004",
            "external data is truncated",
            where=str(path),
            expected=f"at least {end} bytes",
            found=f"{status.st_size} bytes",
        )
    try:
        digest = file_sha256(path)
    except OSError as error:
        raise AotcError(
            "AOTC-I003", f"cannot read external data: {error.strerror}", where=str(path)
        ) from None
    return ExternalFile(location=location, size=status.st_size, sha256=digest)


def tensor_bytes(tensor: onnx.TensorProto) -> int:
    """Size in bytes, by type and dims: entries of external data may omit it."""
    if tensor.data_type == onnx.TensorProto.STRING:
        return sum(len(text) for text in tensor.string_data)
    bits = _NARROW_BITS.get(tensor.data_type)
    if bits is None:
        bits = 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    elements: int = math.prod(tensor.dims)
    return -(-elements * bits // 8)
