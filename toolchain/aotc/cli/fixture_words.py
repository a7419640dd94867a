"""Names of fixtures in words: what inputs a fixture holds, rather than what a build calls it."""

from __future__ import annotations

import re
from typing import Final

_CORNERS: Final = {
    "opt": "optimal sizes",
    "min": "minimum sizes",
    "max": "maximum sizes",
}
_NUMBERED: Final = {
    "user": "your inputs",
    "sample": "your samples",
    "bucket": "sizes of buckets",
    "random": "random sizes",
    "padded": "padded sizes",
    "less": "less padded sizes",
}
_NAME: Final = re.compile(
    rf"({'|'.join(_CORNERS)})(-sampled)?|"
    rf"({'|'.join(_NUMBERED)})(\d+)(?:-(negative|positive|sampled))?"
)
_IN_TEXT: Final = re.compile(rf"\bfixture ({_NAME.pattern})(?![\w.-])")


def fixture_in_words(name: str) -> str:
    """`optimal sizes` for `opt`; a name that no build gives stays as it is."""
    found = _NAME.fullmatch(name)
    if found is None:
        return name
    corner, sampled, kind, number, sign = found.groups()
    if corner:
        return f"{_CORNERS[corner]} with your samples" if sampled else _CORNERS[corner]
    text = f"{_NUMBERED[kind]} {int(number) + 1}"
    if sign == "sampled":
        return f"{text} with your samples"
    return f"{text} with {sign} inputs" if sign else text


def with_fixtures_in_words(text: str) -> str:
    """A text with `fixture NAME` in words."""
    return _IN_TEXT.sub(lambda found: f"fixture of {fixture_in_words(found[1])}", text)
