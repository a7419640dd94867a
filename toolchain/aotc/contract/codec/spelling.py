"""What may have been meant by a word that is not known."""

from __future__ import annotations

from typing import Any

_MOST_HINTS, _LONGEST_WORD = 20, 100
# To look for the nearest of more takes longer than it helps.
_MOST_KNOWN = 1000


def nearest(word: object, known: tuple[Any, ...]) -> str:
    """The known word that is closest in spelling, or an empty string."""
    text = str(word)
    if len(text) > _LONGEST_WORD:
        return ""
    words = [each for k in known[:_MOST_KNOWN] if len(each := str(k)) <= _LONGEST_WORD]
    import difflib

    close = difflib.get_close_matches(text, words, n=1, cutoff=0.5)
    return close[0] if close else ""


def hint(word: object, known: tuple[Any, ...], told: int) -> str:
    """A hint, for the first problems only: hostile documents have many, and long words."""
    if told >= _MOST_HINTS or len(str(word)) > _LONGEST_WORD:
        return ""
    close = nearest(word, known)
    if close:
        return f"; did you mean {close!r}?"
    return f"; known: {', '.join(sorted(str(k) for k in known))}"
