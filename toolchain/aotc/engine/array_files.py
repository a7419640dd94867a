"""Reads arrays from `.npy` files and `.npz` archives, with checks against forged sizes."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from aotc.records import record

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterable, Iterator

# numpy refuses longer headers, but only after reading them: the length field allows 4 GiB.
_MAX_HEADER_BYTES: Final = 10_000


class PickledObjects(ValueError):
    """An array of Python objects: reading it would run what its author chose."""

    def __init__(self) -> None:
        super().__init__("an array of Python objects, which is a pickle")


@record
class Header:
    """What the header of a `.npy` file says of its array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    column_major: bool


def read_header(file: IO[bytes], size: int) -> Header:
    """The header of the seekable `.npy` file `file` of `size` bytes, which is read that far.

    Raises `PickledObjects`, `ValueError`, and whatever numpy raises for a malformed header.
    """
    version = np.lib.format.read_magic(file)
    length = file.read(2 if version == (1, 0) else 4)
    if int.from_bytes(length, "little") > _MAX_HEADER_BYTES:
        raise ValueError(f"a header of {int.from_bytes(length, 'little')} bytes")
    file.seek(0)
    np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
    # Version 3 is version 2 with UTF-8, which only matters for field names.
    shape, column_major, dtype = read[version[0] > 1](file)
    if dtype.hasobject:
        raise PickledObjects
    if math.prod(shape) * dtype.itemsize > size - file.tell():
        raise ValueError(f"{size} bytes are fewer than shape {shape} of {dtype} needs")
    return Header(shape=shape, dtype=dtype, column_major=column_major)


def read_array(file: IO[bytes], size: int) -> np.ndarray[Any, Any]:
    """The array in the seekable `.npy` file `file` of `size` bytes.

    Raises as `read_header` does.
    """
    read_header(file, size)
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def read_rows(file: IO[bytes], size: int, rows: int) -> Iterator[np.ndarray[Any, Any]]:
    """The array in the `.npy` file `file`, cut along its first axis into pieces of `rows`.

    The last piece may be shorter.  One piece is held at a time, unless the array is in column-major
    order.  Raises as `read_header` does, also where the file ends early.
    """
    header = read_header(file, size)
    shape, dtype = header.shape, header.dtype
    if header.column_major:
        file.seek(0)
        whole = np.lib.format.read_array(file, allow_pickle=False)
        yield from (whole[start : start + rows] for start in range(0, shape[0], rows))
        return
    row = math.prod(shape[1:]) * dtype.itemsize
    for start in range(0, shape[0], rows):
        count = min(rows, shape[0] - start)
        data = file.read(count * row)
        if len(data) < count * row:
            raise ValueError(f"the array ends after {start} of {shape[0]} along its first axis")
        yield np.ndarray((count, *shape[1:]), dtype, bytearray(data))


def read_file(path: Path) -> np.ndarray[Any, Any]:
    """The array in a `.npy` file; raises as `read_array` does, and `OSError`."""
    with path.open("rb") as file:
        return read_array(file, os.fstat(file.fileno()).st_size)


def read_members(archive: zipfile.ZipFile, names: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a `.npz` that are among `names`, by name.

    Raises as `read_array` and `zipfile` do.
    """
    found = {}
    for name in names:
        member = member_of(archive, name)
        if member is not None:
            with archive.open(member) as file:
                found[name] = read_array(file, member.file_size)
    return found


def member_of(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo | None:
    """The member of a `.npz` that holds the array `name`."""
    return archive.NameToInfo.get(f"{name}.npy") or archive.NameToInfo.get(name)
