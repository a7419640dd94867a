"""Values of graph inputs and outputs: in Python, in files, and described in words.

A tensor is a numpy array (text: an object array of `str`), a sequence a list, a map a dict, and an
empty optional None.  Element types have ONNX's names, which are numpy's except for the narrow
floats (`float8e4m3fn`); `string` is text.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, Protocol

import numpy as np

from aotc.base.errors import AotcError
from aotc.base.files.reading import open_plain, read_at_most
from aotc.base.records import record
from aotc.spec.codec import Json
from aotc.spec.json import MAX_JSON_BYTES, canonical_json, strict_json
from aotc.spec.payload import Kind, Value
from aotc.spec.relations import is_anonymous

if TYPE_CHECKING:
    import zipfile


# ndarray, list, dict or None.
Data = Any

_NUMPY_TYPES: Final = frozenset(
    {
        "bool",
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
        *("float16", "float32", "float64", "complex64", "complex128"),
    }
)
NUMPY_NAMES: Final = {"float": "float32", "double": "float64"}
_ML_NAMES: Final = {
    "bfloat16": "bfloat16",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
    "float4e2m1": "float4_e2m1fn",
    "int2": "int2",
    "int4": "int4",
    "uint2": "uint2",
    "uint4": "uint4",
}
# Bits of integers that are smaller than a byte.
NARROW_BITS: Final[Mapping[str, int]] = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4}
_ONNX_NAMES: Final = {name: onnx for onnx, name in _ML_NAMES.items()}
_TYPE = re.compile(r"(\w+)\((.*)\)")
# numpy refuses longer headers, but only after reading them: the length field allows 4 GiB.
_MAX_HEADER_BYTES: Final = 10_000


class NodeArg(Protocol):
    """ONNX Runtime's description of an input or output."""

    name: str
    type: str
    shape: list[int | str | None]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of an element type; object for `string`.

    Raises AOTC-I007 for an unknown type, and AOTC-I019 if it needs ml_dtypes, which is missing.
    """
    if name == "string":
        return np.dtype(object)
    if name in _NUMPY_TYPES:
        return np.dtype(name)
    if name not in _ML_NAMES:
        raise AotcError("AOTC-I007", "unknown element type", found=name)
    try:
        import ml_dtypes
    except ImportError:
        raise AotcError(
            "AOTC-I019",
            f"element type {name} needs the package ml_dtypes",
            fix="pip install ml_dtypes",
        ) from None
    narrow: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_NAMES[name]))
    return narrow


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The element type of a numpy dtype; `string` for objects and all kinds of text."""
    if dtype.kind in "OUST":
        return "string"
    return _ONNX_NAMES.get(dtype.name, dtype.name)


def tensor_type(text: str) -> str:
    """The element type in ONNX Runtime's text of a tensor's type, such as `tensor(float16)`."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return NUMPY_NAMES.get(name, name)


def ort_type_to_value(arg: NodeArg) -> Value:
    """A session's input or output as a `Value`; a dim without size and name becomes `NAME.INDEX`.

    The dtype of a map, and of a sequence of maps, is that of its keys.  The shape is None if ONNX
    Runtime reports none: it does not distinguish an unknown rank from a scalar.
    """
    kind, dtype = _parse_type(arg.type)
    shape: tuple[int | str, ...] | None = None
    if kind in ("tensor", "optional", "sparse") and arg.shape:
        shape = tuple(
            f"{arg.name}.{index}" if size is None or is_anonymous(str(size)) else size
            for index, size in enumerate(arg.shape)
        )
    return Value(name=arg.name, kind=kind, dtype=dtype, shape=shape)


def _parse_type(text: str) -> tuple[Kind, str]:
    match = _TYPE.fullmatch(text.strip())
    if match is None:
        raise AotcError("AOTC-I007", "unknown type", found=text)
    outer, inner = match[1], match[2]
    if outer == "tensor":
        return "tensor", NUMPY_NAMES.get(inner, inner)
    if outer == "sparse_tensor":
        return "sparse", NUMPY_NAMES.get(inner, inner)
    if outer == "map":
        key = inner.partition(",")[0].strip()
        return "map", NUMPY_NAMES.get(key, key)
    if outer == "seq":
        kind, dtype = _parse_type(inner)
        return ("map" if kind == "map" else "sequence"), dtype
    if outer == "optional":
        return "optional", _parse_type(inner)[1]
    raise AotcError("AOTC-I007", "unknown type", found=text)


class _WriteOnly:
    """A file that numpy does not recognize as a Python file."""

    def __init__(self, file: BinaryIO) -> None:
        self.write = file.write


def is_npy_array(value: Data) -> bool:
    """Whether the value is an array that the `.npy` format can represent directly."""
    return (
        isinstance(value, np.ndarray) and value.dtype.kind in "biufc" and value.dtype.isbuiltin == 1
    )


def save(value: Data, path: Path) -> Path:
    """Write a value; equal values give equal bytes.  Returns the written file.

    The suffix of `path` becomes `.npy` for arrays of numpy's own types, else `.json`.
    """
    stem = path.with_suffix("") if path.suffix in (".npy", ".json") else path
    if is_npy_array(value):
        target = stem.with_name(stem.name + ".npy")
        with target.open("wb") as file:
            # For a Python file, numpy would not tell why a write failed.
            np.save(_WriteOnly(file), np.asarray(value, order="C"), allow_pickle=False)
    else:
        target = stem.with_name(stem.name + ".json")
        target.write_bytes(canonical_json(to_json(value)))
    return target


# numpy has no error of its own for a malformed header: it raises those of Python's tokenizer and
# compiler, and memory errors for the shape.  What else is raised meanwhile is of no file.
MALFORMED: Final = (
    *(AotcError, ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError),
    *(RecursionError, SyntaxError, TokenError, TypeError, ValueError, struct.error),
)


def load(path: Path, *, refusal: str = "AOTC-I024") -> Data:
    """Read a value that `save` wrote, or any `.npy` without objects; raises `refusal`."""
    try:
        if path.suffix == ".json":
            return from_json(strict_json(read_at_most(path, MAX_JSON_BYTES)))
        return read_file(path)
    except MALFORMED as error:
        raise AotcError(
            refusal, "a value cannot be read", where=str(path), found=str(error)[:300]
        ) from None


def to_json(value: Data) -> Json:
    """Any value as JSON, as `save` writes it; numbers of tensors in base64."""
    if value is None:
        return {"kind": "none"}
    if isinstance(value, dict):
        keys = sorted(value)
        return {
            "kind": "map",
            "keys": to_json(_column(keys)),
            "values": to_json(_column([value[key] for key in keys])),
        }
    if isinstance(value, list | tuple):
        return {"kind": "sequence", "items": [to_json(item) for item in value]}
    array = np.asarray(value, order="C")
    head = {"kind": "tensor", "dtype": dtype_name(array.dtype), "shape": list(array.shape)}
    if head["dtype"] == "string":
        return head | {"data": [str(text) for text in array.ravel().tolist()]}
    # Base64, as JSON can represent neither NaN nor all 64-bit integers.
    return head | {"data": base64.b64encode(array.tobytes()).decode("ascii")}


def _column(items: list[Any]) -> Data:
    return np.array(items, dtype=object if items and isinstance(items[0], str) else None)


def from_json(data: Json) -> Data:
    """What `to_json` was given; raises any of `MALFORMED` for what it did not write."""
    kind = data["kind"]
    if kind == "none":
        return None
    if kind == "map":
        return dict(
            zip(from_json(data["keys"]).tolist(), from_json(data["values"]).tolist(), strict=True)
        )
    if kind == "sequence":
        return [from_json(item) for item in data["items"]]
    if kind != "tensor":
        raise ValueError(f"unknown kind {kind!r}")
    shape = tuple(int(size) for size in data["shape"])
    if data["dtype"] == "string":
        return np.array([str(text) for text in data["data"]], dtype=object).reshape(shape)
    try:
        content = base64.b64decode(data["data"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"data is not base64: {error}") from None
    return np.frombuffer(bytearray(content), numpy_dtype(data["dtype"])).reshape(shape)


def nbytes(value: Data) -> int:
    """Bytes of content; text counts as UTF-8, a number in a map as 8 bytes."""
    if value is None:
        return 0
    if isinstance(value, dict):
        return sum(_item_bytes(key) + _item_bytes(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return sum(nbytes(item) for item in value)
    array = np.asarray(value)
    if dtype_name(array.dtype) == "string":
        return sum(_item_bytes(text) for text in array.ravel().tolist())
    return array.nbytes


def _item_bytes(item: Any) -> int:
    return len(str(item).encode("utf-8", "replace")) if isinstance(item, str) else 8


def elements(value: Data) -> int:
    """Elements of a tensor, or of all tensors of a sequence; 1 for anything else."""
    if isinstance(value, list | tuple):
        return sum(elements(item) for item in value)
    return int(getattr(value, "size", 1))


def in_native_order(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`array` in this machine's order of bytes, as calls take it; itself, if it is so."""
    return np.asarray(array, array.dtype.newbyteorder("="))


def is_finite(value: Data) -> bool:
    """Whether no number in a tensor or sequence is NaN or infinite."""
    if isinstance(value, list | tuple):
        return all(is_finite(item) for item in value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "fc":
        return bool(np.isfinite(value).all())
    return True


def describe(value: Data) -> str:
    """A value's type and shape in words, such as `float32[1, 3]` or `list of 2 float32[3]`."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return f"map of {len(value)}"
    if isinstance(value, list | tuple):
        kinds = sorted({describe(item) for item in value})
        return f"list of {len(value)}" + (f" {' or '.join(kinds[:3])}" if kinds else "")
    if isinstance(value, np.ndarray | np.generic):
        return f"{dtype_name(value.dtype)}[{', '.join(str(size) for size in value.shape)}]"
    return type(value).__name__


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
    # Text of no length takes no bytes, and an object for each of its elements once it is used.
    if math.prod(shape) * max(dtype.itemsize, 1) > size - file.tell():
        raise ValueError(f"{size} bytes are fewer than shape {shape} of {dtype} needs")
    return Header(shape=shape, dtype=dtype, column_major=column_major)


def read_array(file: IO[bytes], size: int) -> np.ndarray[Any, Any]:
    """The array in the seekable `.npy` file `file` of `size` bytes.

    Raises as `read_header` does.
    """
    read_header(file, size)
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def held_bytes(header: Header, size: int, rows: int | None) -> int:
    """What reading an array of `size` bytes holds: all of it, or a piece of so many `rows`."""
    if rows is None or header.column_major:
        return size
    return rows * math.prod(header.shape[1:]) * header.dtype.itemsize


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
    with open_plain(path) as file:
        return read_array(file, os.fstat(file.fileno()).st_size)


# Arrays in `.npz` files, which numpy writes stored or deflated. What is held is bounded, and
# counts before it is unpacked: no more is read of a member than its stated size.

MAX_UNPACKED_BYTES: Final = 1 << 28
MAX_UNPACKED_RATIO: Final = 64
"""How many bytes a byte of the file may become, where it all exceeds `MAX_UNPACKED_BYTES`."""
MAX_DIRECTORY_BYTES: Final = 4 << 20
"""Of the list of members in a `.npz`, each of which takes some hundred bytes of memory."""
_STORED, _DEFLATED = 0, 8


class Npz:
    """An open `.npz`: `names` are those of its arrays."""

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self._archive = archive
        self._most = max(MAX_UNPACKED_BYTES, MAX_UNPACKED_RATIO * size)
        self.names = tuple(name.removesuffix(".npy") for name in archive.namelist())

    def member(self, name: str) -> zipfile.ZipInfo | None:
        """The member that holds the array `name`."""
        found = self._archive.NameToInfo
        return found.get(f"{name}.npy") or found.get(name)

    def arrays(self, names: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays that are among `names`, by name; raises as `read_array` and `zipfile` do."""
        members = {name: member for name in names if (member := self.member(name)) is not None}
        self.require_size(sum(member.file_size for member in members.values()))
        found = {}
        for name, member in members.items():
            with self.opened(member) as file:
                found[name] = read_array(file, member.file_size)
        return found

    def require_size(self, total: int) -> None:
        """Raise `ValueError` if more bytes would be held than a file of this size may become."""
        if total > self._most:
            raise ValueError(f"it unpacks to {total} bytes, of at most {self._most}")

    def opened(self, member: zipfile.ZipInfo) -> IO[bytes]:
        """The content of a member; raises `ValueError` if it is packed as numpy does not."""
        # Other methods unpack without a limit: some bytes become gigabytes in one step.
        if member.compress_type not in (_STORED, _DEFLATED):
            raise ValueError(f"compression method {member.compress_type}")
        return self._archive.open(member)


class _Listed(io.BufferedReader):
    """A file in which `zipfile` reads no longer list of members than is allowed."""

    limited = True

    def read(self, size: int | None = -1, /) -> bytes:
        if self.limited and size is not None and size > MAX_DIRECTORY_BYTES:
            raise ValueError(f"a list of members of {size} bytes")
        return super().read(size)


@contextmanager
def open_npz(path: Path) -> Iterator[Npz]:
    """Open a `.npz`; raises `OSError`, `ValueError`, and what `zipfile` does for a damaged one."""
    import zipfile

    with _Listed(open_plain(path).detach()) as file, zipfile.ZipFile(file) as archive:
        file.limited = False
        yield Npz(archive, os.fstat(file.fileno()).st_size)
