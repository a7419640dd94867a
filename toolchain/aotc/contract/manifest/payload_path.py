"""The type of a path inside a payload."""

from __future__ import annotations

from typing import Annotated

from aotc.contract.codec.parsing import Pattern

# Relative, forward slashes, no empty, '.' or '..' part.
PayloadPath = Annotated[
    str, Pattern(r"(?!\.{1,2}(/|$))[^/\\\x00-\x1f]+(/(?!\.{1,2}(/|$))[^/\\\x00-\x1f]+)*")
]
