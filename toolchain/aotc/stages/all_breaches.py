"""The one refusal of a build that fails gates: every breach, in the order of the profile."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable
from typing import Final

from aotc.errors import EXIT_NO, AotcError

_LAST: Final = sys.maxsize


def all_breaches(errors: Iterable[AotcError]) -> AotcError:
    """The breaches of all `errors`, of which there is at least one: the first with all in `also`.

    Each is told once.  Those of gates come before what else kept a variant from being judged, so
    that the exit status is that of a failed gate; gates are in the order of the profile's lines.
    """
    found: dict[tuple[str, str, str, str], AotcError] = {}
    for error in errors:
        for each in error.every():
            found.setdefault((each.code, each.what, each.where, each.expected), each)
    ordered = sorted(
        found.values(),
        key=lambda each: (each.exit_status != EXIT_NO, each.place.line if each.place else _LAST),
    )
    first, *others = (copy.copy(each) for each in ordered)
    for each in others:
        each.also = ()
    first.also = tuple(others)
    return first
