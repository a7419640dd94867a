"""Names of files: made from names that others chose, and those of a user's test data.

Made names are valid on every system, and never a path.  Test data are fixtures, calibration data
and labelled sets.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.text import is_utf8

# Below the 255 bytes that file systems take, to leave room for a draft's prefix.
_MAX_LENGTH: Final = 200
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.+=@,")
# For the empty name: no other name is a single percent sign.
_EMPTY: Final = "%"
# Device names of Windows, with and without a suffix.
_RESERVED: Final = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)")


def file_name(name: str, suffix: str = "") -> str:
    """The file name for `name` with `suffix` (such as `.npy`), which is kept as it is.

    Letters, digits and `_-.+=@,` stay; any other byte of the name's UTF-8 is written `%XX`, and so
    are a leading dot or dash, a trailing dot and the first letter of a reserved name.  A name that
    would be too long is cut and ends in `~` and digits of its digest.
    Different names have different file names, but some differ only in case: see `file_names`.
    """
    data = name.encode("utf-8", "surrogatepass")
    text = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in data) or _EMPTY
    if text[0] in ".-" or _RESERVED.match(text):
        text = f"%{ord(text[0]):02X}{text[1:]}"
    if text[-1] == ".":
        text = f"{text[:-1]}%2E"
    if len(text) + len(suffix) > _MAX_LENGTH:
        text = _with_digest(text, data, suffix)
    return text + suffix


def file_names(names: Iterable[str], suffix: str = "") -> dict[str, str]:
    """The file name for each of `names`; no two are the same, even if case is ignored.

    Of names that would collide, the first keeps its file name; the others end in digits of their
    digest.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        if name in found:
            continue
        chosen = file_name(name, suffix)
        if chosen.lower() in taken:
            plain = file_name(name).partition("~")[0]
            chosen = _with_digest(plain, name.encode("utf-8", "surrogatepass"), suffix) + suffix
        taken.add(chosen.lower())
        found[name] = chosen
    return found


def _with_digest(text: str, data: bytes, suffix: str) -> str:
    """`text`, cut between two characters of the name, with the digest of the complete name."""
    digest = f"~{hashlib.sha256(data).hexdigest()[:32]}"
    kept = text[: _MAX_LENGTH - len(digest) - len(suffix)]
    return re.sub(r"%[0-9A-F]?$", "", kept) + digest


def data_sources(path: Path) -> list[Path]:
    """The `.npz` files, and then the folders of ONNX test data, at or in `path`, sorted.

    Raises `OSError`, and AOTC-I027 for a name that no manifest can hold.
    """
    # What is neither a file nor a folder is refused when it is read.
    if not path.is_dir() or (path / "input_0.pb").exists():
        return [path]
    listed = sorted(path.iterdir())
    found = [p for p in listed if p.suffix == ".npz"]
    return _in_utf8(found + [p for p in listed if (p / "input_0.pb").exists()])


def data_files(path: Path) -> list[Path]:
    """The files of all sources at or in `path`, those behind links too.

    Raises `OSError`, and AOTC-I027 for a name that no manifest can hold.  Nothing below the folder
    of a source is read, so a link back to a folder around it is no cycle.
    """
    found: set[Path] = set()
    for source in data_sources(path):
        found.update(source.iterdir() if source.is_dir() else [source])
    return _in_utf8(sorted(file for file in found if file.is_file()))


def _in_utf8(paths: list[Path]) -> list[Path]:
    for path in paths:
        if not is_utf8(path.name):
            raise AotcError(
                "AOTC-I027", "the name of a file is not UTF-8", where=str(path), fix="Rename it."
            )
    return paths
