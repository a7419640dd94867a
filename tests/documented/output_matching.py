"""Whether a program printed what a page shows: the same words, whatever the numbers.

Ids, sizes and times differ from machine to machine, lines wrap with the width of the terminal, and
pages leave lines out: each line that is shown has to be printed, in that order.
"""

from __future__ import annotations

import re

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_HEX = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{8,64}\b")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?|\d+(?:\.\d+)?")
_UNIT = re.compile(r"# (?:us|ms|s|min|B|kB|MB|GB|kFLOP|MFLOP|GFLOP)\b")
_ELLIPSIS = "…"


def missing_lines(shown: str, printed: str) -> list[str]:
    """The lines of `shown` that `printed` does not have, after those before them."""
    text = _plain(printed)
    missing, at = [], 0
    for line in shown.splitlines():
        if not line.strip():
            continue
        parts = map(re.escape, _plain(line).split(_ELLIPSIS))
        found = re.compile(r"\S*".join(parts)).search(text, at)
        if found is None:
            missing.append(line)
        else:
            at = found.end()
    return missing


def _plain(text: str) -> str:
    text = _HEX.sub("#", _STYLE.sub("", text))
    text = _NUMBER.sub("#", text)
    return _UNIT.sub("#", " ".join(text.split()))


def said_of_prints(code: str) -> str:
    """What the comments behind the `print` calls of a program say that they print."""
    return "\n".join(re.findall(r"print\(.*\)  # (.*)$", code, re.MULTILINE))
