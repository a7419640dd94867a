"""Makes foreign text safe to show: characters that could mislead are escaped.

Names, messages and hints come from models, manifests, certificates and servers.  A line break in
them would forge a line of ours; a control character or a change of direction would hide one.  All
text that a terminal, a log or an exception shows goes through `printable`.
"""

from __future__ import annotations

import re
from typing import Final

# How much of one text is shown; `--json` has all of it.
MAX_CHARACTERS: Final = 2000
# Printable by `str.isprintable`, but invisible or altering the preceding character.
_INVISIBLE: Final = (
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# Written languages stack fewer marks on a letter; more of them cover the lines above.
_MAX_MARKS: Final = 4


def printable(text: str, maximum: int = MAX_CHARACTERS) -> str:
    """`text` in one line, safe for a terminal, with at most `maximum` characters.

    Escaped as in Python (`\\n`, `\\x1b`, `\\u202e`) are all control characters, line and paragraph
    separators, characters of direction, format, private use and zero width, surrogates, unassigned
    characters, blanks other than the space, and marks without a letter.  Printable text stays as it
    is, so escaping twice changes nothing more.
    """
    shown = _escaped(text[: maximum + 1])
    if len(shown) <= maximum and len(text) <= maximum:
        return shown
    rest = f"... ({len(text):,} characters)"
    return shown[: max(maximum - len(rest), 0)] + rest


def _escaped(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    import unicodedata

    parts: list[str] = []
    marks = _MAX_MARKS
    for character in text:
        if unicodedata.category(character) in ("Mn", "Me"):
            marks += 1
        else:
            marks = 0
        is_plain = (
            character.isprintable() and marks <= _MAX_MARKS and not re.match(_INVISIBLE, character)
        )
        parts.append(character if is_plain else character.encode("unicode_escape").decode("ascii"))
        if not is_plain:
            # A mark that follows has no letter to belong to.
            marks = _MAX_MARKS
    return "".join(parts)
