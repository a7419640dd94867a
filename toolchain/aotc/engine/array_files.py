"""Arrays in `.npy` files and `.npz` archives: none says that it is longer than it is."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterable

# numpy refuses to parse longer ones, but reads them whole before: four bytes say up to 4 GiB.
_MOST_HEADER: Final = 10_000


def read_array(file: IO[bytes], size: int) -> np.ndarray[Any, Any]:
    """The array of a `.npy` file of `size` bytes that can be rewound.

    Raises `ValueError`, and what numpy lets out of a header that is none.
    """
    version = np.lib.format.read_magic(file)
    counted = file.read(2 if version == (1, 0) else 4)
    if int.from_bytes(counted, "little") > _MOST_HEADER:
        raise ValueError(f"a header of {int.from_bytes(counted, 'little')} bytes")
    file.seek(0)
    np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
    # The third version is the second in UTF-8, which only names of fields need.
    shape, _, dtype = read[version[0] > 1](file)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    if math.prod(shape) * dtype.itemsize > size - file.tell():
        raise ValueError(f"{size} bytes are less than shape {shape} of {dtype} takes")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def read_file(path: Path) -> np.ndarray[Any, Any]:
    """The array of a `.npy` file; raises as `read_array`, and `OSError`."""
    with path.open("rb") as file:
        return read_array(file, os.fstat(file.fileno()).st_size)


def read_members(archive: zipfile.ZipFile, names: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a `.npz` that are among `names`; raises as `read_array`, and of zip."""
    found = {}
    held = archive.NameToInfo
    for name in names:
        member = held.get(f"{name}.npy") or held.get(name)
        if member is not None:
            with archive.open(member) as file:
                found[name] = read_array(file, member.file_size)
    return found
