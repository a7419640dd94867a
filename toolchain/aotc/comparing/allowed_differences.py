"""`--fail-on`: areas in which two artifacts must not differ, or not by more than a ratio."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from aotc.contract.codec.spelling import hint
from aotc.contract.results.diff_report import AREAS, MEASURED, AllowedDiff, AreaDiff
from aotc.contract.results.reports import Refusal
from aotc.errors import AotcError

_RATIO = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


def read_allowed(words: Iterable[str]) -> tuple[AllowedDiff, ...]:
    """`AREA` or `AREA:RATIO` words as records; raises AOTC-I060 for another area or no ratio."""
    found: dict[str, AllowedDiff] = {}
    for word in words:
        name, colon, number = word.partition(":")
        area = next((each for each in AREAS if each == name), None)
        if area is None:
            raise _refused(f"no area is called {name!r}{hint(name, AREAS, 0)}", word)
        if area in found:
            raise _refused(f"{area} is named twice", word)
        if colon and area not in MEASURED:
            raise _refused(f"{area} has no ratio; those with one: {', '.join(MEASURED)}", word)
        if colon and not (_RATIO.fullmatch(number) and float(number) > 0):
            raise _refused(f"{number!r} is not a ratio such as 1.05", word)
        found[area] = AllowedDiff(area=area, ratio=float(number) if colon else None)
    return tuple(found.values())


def _refused(what: str, word: str) -> AotcError:
    return AotcError("AOTC-I060", what, where="--fail-on", found=word)


def failures(
    allowed: Sequence[AllowedDiff], areas: Sequence[AreaDiff], measured_from: str
) -> tuple[Refusal, ...]:
    """One AOTC-I061 for each area that differs by more than is allowed, with what was measured."""
    by_name = {area.area: area for area in areas}
    found = []
    for each in allowed:
        why = _exceeded(each, by_name[each.area])
        if why is not None:
            expected, measured = why
            found.append(
                Refusal(
                    code="AOTC-I061",
                    what=f"the artifacts differ in their {each.area}",
                    where=measured_from,
                    expected=expected,
                    found=measured,
                )
            )
    return tuple(found)


def _exceeded(allowed: AllowedDiff, area: AreaDiff) -> tuple[str, str] | None:
    """What was expected and what was found; None if the area is as allowed."""
    if area.status == "not-compared":
        return "a comparison", f"not compared: {area.reason}"
    if allowed.ratio is None:
        if area.status == "same":
            return None
        count = len(area.changes)
        first = f", the first of {area.changes[0].what}" if area.changes else ""
        return "no difference", f"{count or 'some'} difference{'' if count == 1 else 's'}{first}"
    expected = f"at most {allowed.ratio:g} times A's"
    if area.reason:
        # The number is not of all that is promised.
        return expected, area.reason
    if area.status == "same" or (area.ratio is not None and area.ratio <= allowed.ratio):
        return None
    if area.ratio is None:
        return expected, "a ratio that is not known"
    return expected, f"{area.ratio:.4g} times A's"
