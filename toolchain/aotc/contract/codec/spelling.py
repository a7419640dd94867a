"""Suggestions for words that are not known."""

from __future__ import annotations

from typing import Any

_MAX_HINTS, _MAX_WORD = 20, 100
# The time to compare grows with the number of known words.
_MAX_KNOWN = 1000


def nearest(word: object, known: tuple[Any, ...]) -> str:
    """The known word that is closest in spelling, or an empty string."""
    text = str(word)
    if len(text) > _MAX_WORD:
        return ""
    words = [name for k in known[:_MAX_KNOWN] if len(name := str(k)) <= _MAX_WORD]
    import difflib

    close = difflib.get_close_matches(text, words, n=1, cutoff=0.5)
    return close[0] if close else ""


def hint(word: object, known: tuple[Any, ...], problems: int) -> str:
    """The nearest known word as the end of a message, else all known words.

    Empty if the word is very long, or after the first of many `problems`: a hostile document has
    many of them.
    """
    if problems >= _MAX_HINTS or len(str(word)) > _MAX_WORD:
        return ""
    close = nearest(word, known)
    if close:
        return f"; did you mean {close!r}?"
    return f"; known: {', '.join(sorted(str(k) for k in known))}"
