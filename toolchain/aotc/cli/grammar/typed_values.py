"""Values of options and arguments: what a word must look like, and what it is read as.

A reader of one word raises `typer.BadParameter`, and takes a default that is read already.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import typer

from aotc.errors import AotcError


def positive(text: str | int) -> int:
    """A number that counts something."""
    word = str(text)
    if not (word.isascii() and word.isdigit() and len(word) < 19 and int(word) > 0):
        raise typer.BadParameter(f"{word!r} is not a positive number")
    return int(word)


def message_format(text: str) -> str:
    """How messages are written."""
    if text not in ("text", "github"):
        raise typer.BadParameter(f"{text!r} is neither text nor github")
    return text


def positive_real(text: str | float) -> float:
    """A number above zero, which need not be whole."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    # NaN is refused with what is not a number at all.
    if not 0 < number < math.inf:
        raise typer.BadParameter(f"{str(text)!r} is not a number above 0")
    return number


def byte_count(text: str | int) -> int:
    """A number of bytes, with or without a unit."""
    found = re.fullmatch(r"(\d{1,15})(?: ?([kMGT])(i?)B)?", str(text), re.ASCII)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a size such as 1000000, 500MB or 1GiB")
    number, unit, binary = found.groups()
    power = " kMGT".index(unit) if unit else 0
    return int(number) * int((1024 if binary else 1000) ** power)


def pairs(words: Iterable[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` words as a mapping; raises AOTC-I027."""
    found: dict[str, str] = {}
    for word in words:
        # A dim's name may hold '='; a value never does.
        name, _, value = word.rpartition("=")
        if not name or not value:
            raise AotcError("AOTC-I027", f"{option} takes NAME=VALUE", where=option, found=word)
        if name in found:
            raise AotcError("AOTC-I027", f"{name!r} is given twice", where=option, found=word)
        found[name] = value
    return found


def comma_separated(words: Sequence[str]) -> list[str] | None:
    """The names in `words`, each of which may hold several; None where there are none."""
    return [name for word in words for name in word.split(",") if name] or None
