"""Libraries of custom operators: those that somebody named, copies of them, what they need.

ONNX Runtime loads such a library into the process, and its code runs from then on.  So a copy is
loaded that was hashed while it was made, and what it needs of a machine is read from its bytes.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

from aotc.base.files.failures import cannot_read, cannot_write, is_full
from aotc.base.files.reading import file_sha256, open_plain
from aotc.base.records import record

# Paths, separated as in PATH.
CUSTOM_OPS_VARIABLE: Final = "AOTC_CUSTOM_OPS"
CANNOT_READ: Final = "cannot read the library of custom operators"
ENTRY_POINT: Final = "RegisterCustomOps"
MOST_BYTES: Final = 2 << 30
_BLOCK: Final = 1 << 20

_MACHINES: Final = {62: "x86_64", 183: "aarch64"}
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_DYNAMIC: Final = struct.Struct("<qQ")
_SHARED_OBJECT: Final = 3
_DYNAMIC_TABLE, _DYNAMIC_SYMBOLS = 6, 11
# Entries that name libraries to load (needed, audited, filtered), and folders to search.
_LIBRARIES: Final = (1, 0x6FFFFEFB, 0x6FFFFEFC, 0x7FFFFFFD, 0x7FFFFFFF)
_FOLDERS: Final = (15, 29)
_UNDEFINED: Final = 0
_FUNCTIONS: Final = (2, 10)
_MOST_SYMBOLS: Final = 10_000_000
_LONGEST_NAME: Final = 1 << 16
# Every process with ONNX Runtime has loaded these, so that no folder is searched for them.
_LOADED: Final = re.compile(
    r"(ld-linux[\w.-]*|ld-musl[\w.-]*|libc(\.musl-\w+)?|libm|libdl|librt|libpthread"
    r"|libstdc\+\+|libgcc_s)\.so(\.\d+)*"
)
_PYTHON_NAME: Final = re.compile(r"_?Py(?:_|[A-Z])\w*")
_TAG: Final = re.compile(r"\.(abi3|(?:cpython|pypy)[^.-]*-?\w*)[\w-]*\.so$")


class NotALibrary(ValueError):
    """The bytes are not those of a shared library of Linux."""


@record
class LibraryFacts:
    """What a library says of itself, before it is loaded.

    `needed` are the libraries that the loader would search for, `folders` where it would look
    first, and `glibc` is the newest version that it was linked with ("" without any).
    """

    architecture: str
    registers: bool
    needs_python: bool
    needed: tuple[str, ...]
    folders: tuple[str, ...]
    glibc: str


def stated_custom_ops(given: Sequence[str | Path] | None = None) -> tuple[Path, ...]:
    """The libraries that a caller names; without any, those of the environment."""
    if given:
        return tuple(Path(path).absolute() for path in given)
    words = os.environ.get(CUSTOM_OPS_VARIABLE, "").split(os.pathsep)
    return tuple(Path(word).absolute() for word in words if word)


def digests_of(libraries: Iterable[Path]) -> dict[str, str]:
    """The names of files by their sha256 (hex); raises AOTC-I001 if one cannot be read."""
    found = {}
    for path in libraries:
        try:
            found[file_sha256(path)] = path.name
        except OSError as error:
            raise cannot_read(error, CANNOT_READ, str(path)) from None
    return found


def python_abi() -> str:
    """Of this interpreter, as files of extension modules are named: `cpython-311`."""
    return "-".join(EXTENSION_SUFFIXES[0].lstrip(".").split("-")[:2])


def abi_of(name: str) -> str:
    """The Python ABI in the name of a library's file: `cpython-311`, `abi3`, or "" for none."""
    found = _TAG.search(name)
    return "" if found is None else "-".join(found[1].split("-")[:2])


def copy_library(source: Path, target: Path) -> tuple[str, int]:
    """Copy a plain file of at most `MOST_BYTES`; the sha256 (hex) and the size of what was copied.

    Raises OSError as `open_plain` does, NotALibrary for a larger one, and AOTC-I018 if the disk is
    full.
    """
    digest, size = hashlib.sha256(), 0
    try:
        with open_plain(source) as file, target.open("xb") as copy:
            while block := file.read(_BLOCK):
                size += len(block)
                if size > MOST_BYTES:
                    raise NotALibrary(f"it is larger than {MOST_BYTES} bytes")
                digest.update(block)
                copy.write(block)
    except OSError as error:
        if is_full(error):
            raise cannot_write(error, "cannot copy a library", str(target)) from None
        raise
    target.chmod(0o500)
    return digest.hexdigest(), size


def read_facts(library: Path) -> LibraryFacts:
    """What the ELF file `library` says of itself; raises NotALibrary and OSError.

    Sections are read, not segments: a library without them is refused, though it may be loaded.
    """
    with open_plain(library) as file:
        if os.fstat(file.fileno()).st_size < _HEADER.size:
            raise NotALibrary("it is too short")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _facts(data)
            except (struct.error, IndexError, UnicodeDecodeError):
                raise NotALibrary("its tables lead out of the file") from None


def _facts(data: mmap.mmap) -> LibraryFacts:
    ident, kind, machine, *_, start, _, _, _, _, size, count, _ = _HEADER.unpack_from(data)
    if ident[:4] != b"\x7fELF":
        raise NotALibrary("it does not begin as ELF files do")
    # 64 bits, the low byte first: so are both architectures that aotc knows.
    if ident[4:6] != b"\x02\x01":
        return LibraryFacts(
            architecture="of 32 bits, or with the high byte first",
            registers=False,
            needs_python=False,
            needed=(),
            folders=(),
            glibc="",
        )
    if kind != _SHARED_OBJECT:
        raise NotALibrary("it is no shared object")
    if size != _SECTION.size:
        raise NotALibrary("it has no sections")
    sections = [_SECTION.unpack_from(data, start + index * size) for index in range(count)]
    symbols = [each for each in sections if each[1] == _DYNAMIC_SYMBOLS]
    tables = [each for each in sections if each[1] == _DYNAMIC_TABLE]
    if not symbols or not tables:
        raise NotALibrary("it has no table of dynamic symbols")
    texts = _strings_of(data, sections, tables[0])
    entries = [_DYNAMIC.unpack(chunk) for chunk in _rows(data, tables[0], _DYNAMIC.size)]
    libraries = [_text(texts, value) for kind, value in entries if kind in _LIBRARIES]
    folders = [_text(texts, value) for kind, value in entries if kind in _FOLDERS]
    names = _strings_of(data, sections, symbols[0])
    registers = needs_python = False
    for chunk in _rows(data, symbols[0], _SYMBOL.size):
        name, info, _, section, _, _ = _SYMBOL.unpack(chunk)
        if section == _UNDEFINED:
            needs_python = needs_python or _PYTHON_NAME.fullmatch(_text(names, name)) is not None
        elif info & 15 in _FUNCTIONS and not registers:
            registers = _text(names, name) == ENTRY_POINT
    versions = re.findall(rb"(?<=\0)GLIBC_(\d+(?:\.\d+)*)(?=\0)", texts)
    return LibraryFacts(
        architecture=_MACHINES.get(machine, f"ELF machine {machine}"),
        registers=registers,
        needs_python=needs_python,
        needed=tuple(name for name in libraries if _LOADED.fullmatch(name) is None),
        folders=tuple(folders),
        glibc=max((text.decode() for text in versions), key=_parts, default=""),
    )


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _strings_of(
    data: mmap.mmap, sections: Sequence[tuple[int, ...]], section: tuple[int, ...]
) -> bytes:
    """The text that the names in `section` point into."""
    linked = sections[section[6]]
    return data[linked[4] : linked[4] + linked[5]]


def _rows(data: mmap.mmap, section: tuple[int, ...], size: int) -> Iterator[bytes]:
    offset, length = section[4], section[5]
    if offset + length > len(data) or length > _MOST_SYMBOLS * size:
        raise NotALibrary("its tables lead out of the file")
    for place in range(offset, offset + length - length % size, size):
        yield data[place : place + size]


def _text(strings: bytes, offset: int) -> str:
    end = strings.find(b"\0", offset, offset + _LONGEST_NAME)
    if end < 0:
        raise NotALibrary("its tables lead out of the file")
    return strings[offset:end].decode()
