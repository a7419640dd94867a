"""Names that others chose, as names of files: every system takes them, and none is a path."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final

# Less than the 255 bytes that file systems take, so that a draft's prefix has room.
_LONGEST: Final = 200
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.+=@,")
# Of nothing: a sign that encodes nothing stands alone in no other name.
_EMPTY: Final = "%"
# Devices of Windows, with and without a suffix.
_RESERVED: Final = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)")


def file_name(name: str, suffix: str = "") -> str:
    """The file name of `name` with `suffix` (`.npy`), which is ours and stays as it is.

    Letters, digits and `_-.+=@,` stand for themselves; any other byte of the name's UTF-8 is
    `%XX`, and so are a dot or a dash in front, a dot at the end and the first letter of a
    reserved name.  What would be too long is cut, and ends in `~` and digits of its digest.
    Other names have other file names, in some of which only the case differs: see `file_names`.
    """
    data = name.encode("utf-8", "surrogatepass")
    text = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in data) or _EMPTY
    if text[0] in ".-" or _RESERVED.match(text):
        text = f"%{ord(text[0]):02X}{text[1:]}"
    if text[-1] == ".":
        text = f"{text[:-1]}%2E"
    if len(text) + len(suffix) > _LONGEST:
        text = _told_apart(text, data, suffix)
    return text + suffix


def file_names(names: Iterable[str], suffix: str = "") -> dict[str, str]:
    """The file name of each of `names`, no two of which are one, whatever a system says of case.

    The first of those that would be one keeps its name; the others end in digits of their digest.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        if name in found:
            continue
        chosen = file_name(name, suffix)
        if chosen.lower() in taken:
            plain = file_name(name).partition("~")[0]
            chosen = _told_apart(plain, name.encode("utf-8", "surrogatepass"), suffix) + suffix
        taken.add(chosen.lower())
        found[name] = chosen
    return found


def _told_apart(text: str, data: bytes, suffix: str) -> str:
    """`text`, cut between two characters of the name, with the digest of the whole name."""
    digest = f"~{hashlib.sha256(data).hexdigest()[:32]}"
    kept = text[: _LONGEST - len(digest) - len(suffix)]
    return re.sub(r"%[0-9A-F]?$", "", kept) + digest
