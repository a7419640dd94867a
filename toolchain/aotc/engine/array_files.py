"""Reads arrays from `.npy` files and `.npz` archives, with checks against forged sizes."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterable

# numpy refuses longer headers, but only after reading them: the length field allows 4 GiB.
_MAX_HEADER_BYTES: Final = 10_000


def read_array(file: IO[bytes], size: int) -> np.ndarray[Any, Any]:
    """The array in the seekable `.npy` file `file` of `size` bytes.

    Raises `ValueError`, and whatever numpy raises for a malformed header.
    """
    version = np.lib.format.read_magic(file)
    length = file.read(2 if version == (1, 0) else 4)
    if int.from_bytes(length, "little") > _MAX_HEADER_BYTES:
        raise ValueError(f"a header of {int.from_bytes(length, 'little')} bytes")
    file.seek(0)
    np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
    # Version 3 is version 2 with UTF-8, which only matters for field names.
    shape, _, dtype = read[version[0] > 1](file)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    if math.prod(shape) * dtype.itemsize > size - file.tell():
        raise ValueError(f"{size} bytes are fewer than shape {shape} of {dtype} needs")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def read_file(path: Path) -> np.ndarray[Any, Any]:
    """The array in a `.npy` file; raises as `read_array` does, and `OSError`."""
    with path.open("rb") as file:
        return read_array(file, os.fstat(file.fileno()).st_size)


def read_members(archive: zipfile.ZipFile, names: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a `.npz` that are among `names`, by name.

    Raises as `read_array` and `zipfile` do.
    """
    found = {}
    members = archive.NameToInfo
    for name in names:
        member = members.get(f"{name}.npy") or members.get(name)
        if member is not None:
            with archive.open(member) as file:
                found[name] = read_array(file, member.file_size)
    return found
