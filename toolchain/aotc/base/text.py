"""Text for people: foreign characters escaped, near spellings of a word, and values in words.

Names, messages and hints come from models, manifests, certificates and servers.  A line break in
them would forge a line of ours; a control character or a change of direction would hide one.  All
text that a terminal, a log or an exception shows goes through `printable`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

# How much of one text is shown; `--json` has all of it.
MAX_CHARACTERS: Final = 2000
# Printable by `str.isprintable`, but invisible or altering the preceding character.
_INVISIBLE: Final = (
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# Written languages stack fewer marks on a letter; more of them cover the lines above.
_MAX_MARKS: Final = 4

# What a person who reads a document does not see, or sees in another place or as a plain space: all
# control and format characters, private use, blanks but the space, what Unicode lets a font ignore,
# and piles of marks. A list, as classes of characters differ between versions of Python.
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\xa0\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2"
    "\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000"
    "\u3164\ud800-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
    "|\r(?!\n)"
    "|(?<=[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4})"
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
)
# Controls, which Unicode gives no names, where people know one.
_CONTROLS: Final = {"\0": "NULL", "\r": "CARRIAGE RETURN", "\x1b": "ESCAPE", "\x85": "NEXT LINE"}

# Shorter words are near to everything.
_LEAST_NEAR: Final = 3
_MAX_HINTS, _MAX_WORD = 20, 100
# The time to compare grows with the number of known words.
_MAX_KNOWN = 1000

# Of a list in one cell; the rest is counted.
MAX_LISTED: Final = 8


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


def is_utf8(name: str) -> bool:
    """Whether a text that the system gave was bytes in UTF-8, and not any others."""
    return name.isascii() or not any("\ud800" <= each <= "\udfff" for each in name)


def hidden_characters(text: str) -> Iterator[tuple[int, str]]:
    """Where `text` has a character that shows otherwise than it reads, and which one.

    The character is told as `U+2028 LINE SEPARATOR`.  Line breaks are `\\n` and `\\r\\n`, and a
    byte order mark may stand at the start.
    """
    for found in _HIDDEN.finditer(text, text.startswith("\ufeff")):
        import unicodedata

        character = found[0]
        name = _CONTROLS.get(character) or unicodedata.name(character, "")
        yield found.start(), f"U+{ord(character):04X}{' ' if name else ''}{name}"


def nearest(word: object, known: tuple[Any, ...]) -> str:
    """The known word that is closest in spelling, or an empty string."""
    text = str(word)
    if len(text) > _MAX_WORD:
        return ""
    words = [name for k in known[:_MAX_KNOWN] if len(name := str(k)) <= _MAX_WORD]
    import difflib

    close = difflib.get_close_matches(text, words, n=1, cutoff=0.5)
    return close[0] if close else ""


def near(word: str, known: Iterable[str]) -> str:
    """The known word that is at most a few slips of the hand from `word`, or that it begins.

    Empty where there is none.
    """
    text = word.lstrip("-").lower()
    if len(text) < _LEAST_NEAR or len(text) > _MAX_WORD:
        return ""
    by_name = {name.lstrip("-").lower(): name for name in known if len(name.lstrip("-")) > 1}
    if text in by_name:
        return by_name[text]
    begun = [name for name in by_name if name.startswith(text)]
    if len(begun) == 1:
        return by_name[begun[0]]
    slips = {name: _distance(text, name) for name in by_name}
    best = min(slips, key=lambda name: slips[name], default="")
    # A third of a word is another word.
    return by_name[best] if best and slips[best] <= (min(len(text), len(best)) + 1) // 3 else ""


def _distance(one: str, other: str) -> int:
    """How many letters are added, left out, changed or swapped with the next one."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one):
        last, row, before = row, [i + 1], row if not i else before
        for j, right in enumerate(other):
            least = min(last[j + 1] + 1, row[j] + 1, last[j] + (letter != right))
            if i and j and letter == other[j - 1] and one[i - 1] == right:
                least = min(least, before[j - 1] + 1)
            row.append(least)
        before = last
    return row[-1]


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """The nearest known word, if it is near, as the end of a message, or an empty string."""
    text, close = str(word), nearest(word, tuple(known))
    is_near = near(text, (close,)) or close.startswith(text)
    return f"; did you mean {close!r}?" if close and is_near else ""


def hint(word: object, known: tuple[Any, ...], problems: int) -> str:
    """The nearest known word as the end of a message, else all known words.

    Empty if the word is very long, or after the first of many `problems`: a hostile document has
    many of them.
    """
    if problems >= _MAX_HINTS or len(str(word)) > _MAX_WORD:
        return ""
    return did_you_mean(word, known) or f"; known: {', '.join(sorted(str(k) for k in known))}"


def size(count: int) -> str:
    """Bytes in decimal units: `160.1 kB`."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.95 or unit == "TB":
            break
    return f"{value:.1f} {unit}"


def duration(seconds: float) -> str:
    """Seconds to three digits, in the unit that suits: `27.1 us`, `5.00 ms`, `12.3 s`."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{_three_digits(seconds)} s"


def _three_digits(number: float) -> str:
    return (
        f"{number:.0f}"
        if number >= 99.95
        else f"{number:.1f}"
        if number >= 9.995
        else f"{number:.2f}"
    )


def listed(items: Sequence[str]) -> str:
    """Names in one cell, of many the first `MAX_LISTED`."""
    rest = len(items) - MAX_LISTED
    return ", ".join(items[:MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")
