"""Text that others wrote, as it may be shown: what is no plain letter is written out.

Names, messages and hints come from models, manifests, certificates and servers.  A line break
among them would forge a line of ours; a control character or a change of direction would hide
one.  All that a terminal, a log or an exception shows goes through `printable`.
"""

from __future__ import annotations

import re
from typing import Final

# What a person reads of one text; `--json` has all of it.
MOST_CHARACTERS: Final = 2000
# Letters and marks to `str.isprintable` that show nothing, or change what stands before them.
_INVISIBLE: Final = (
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# Written languages stack fewer on a letter; more of them cover the lines above.
_MOST_MARKS: Final = 4


def printable(text: str, most: int = MOST_CHARACTERS) -> str:
    """`text` in one line that steers no terminal, of at most `most` characters.

    Written as Python would (`\\n`, `\\x1b`, `\\u202e`) are all control characters, line and
    paragraph separators, characters of direction, format, private use and no width, surrogates,
    what Unicode does not assign, blanks other than the space, and marks on nothing.
    What was printable stays as it is, so that twice is as once.
    """
    shown = _escaped(text[: most + 1])
    if len(shown) <= most and len(text) <= most:
        return shown
    rest = f"... ({len(text):,} characters)"
    return shown[: max(most - len(rest), 0)] + rest


def _escaped(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    import unicodedata

    parts: list[str] = []
    marks = _MOST_MARKS
    for each in text:
        if unicodedata.category(each) in ("Mn", "Me"):
            marks += 1
        else:
            marks = 0
        plain = each.isprintable() and marks <= _MOST_MARKS and not re.match(_INVISIBLE, each)
        parts.append(each if plain else each.encode("unicode_escape").decode("ascii"))
        if not plain:
            # A mark that follows has nothing to stand on.
            marks = _MOST_MARKS
    return "".join(parts)
