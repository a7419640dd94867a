"""Names of nodes as a line of a profile."""

from __future__ import annotations

from collections.abc import Iterable


def kept_line(names: Iterable[str]) -> str:
    """`keep_float32: [...]` in YAML, in one line and in ASCII, whatever the names contain."""
    return f"keep_float32: [{', '.join(map(_quoted, names))}]"


def _quoted(name: str) -> str:
    """A double-quoted scalar (YAML 1.1, section 5.7): other characters are escaped by number."""
    return '"' + "".join(map(_escaped, name)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if " " <= character <= "~":
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\U{number:08x}"
