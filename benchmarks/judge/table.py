"""The table of what was judged, by network and arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.judge.shipped import Shipped
from benchmarks.judge.trials import Outcome
from benchmarks.table import markdown

_HEAD = (
    "Network",
    "Arithmetic",
    "Faults",
    "Missed",
    "Honest",
    "Refused",
    "Poor (refused)",
    "Slices",
    "Drowned",
    "Noise",
)


def rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """One for each network and arithmetic, then totals by arithmetic, then of all."""
    found = [_row(each.network, each.arithmetic, [each]) for each in outcomes]
    for arithmetic in dict.fromkeys(each.arithmetic for each in outcomes):
        same = [each for each in outcomes if each.arithmetic == arithmetic]
        found.append(_row("all", arithmetic, same))
    return [*found, _row("all", f"all but {_APART}", _counted(outcomes))]


def _counted(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if each.arithmetic != _APART]


def _row(network: str, arithmetic: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    def total(name: str) -> int:
        return sum(getattr(each, name) for each in outcomes)

    slices = max(total("slices"), 1)
    return (
        network,
        arithmetic,
        str(total("faults")),
        _of(total("missed"), total("faults")),
        str(total("honest")),
        _of(total("refused"), total("honest")),
        f"{total('poor')} ({total('poor_refused')})",
        str(total("slices")),
        f"{total('drowned') / slices:.1%}",
        f"{total('noise') / slices:.1%}",
    )


def _of(count: int, total: int) -> str:
    return f"{count} ({count / total:.1%})" if count else "0"


def kinds(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """By kind of fault: judged, and missed."""
    sums: dict[str, list[int]] = {}
    for outcome in outcomes:
        for kind, (judged, missed) in outcome.kinds.items():
            known = sums.setdefault(kind, [0, 0])
            known[0] += judged
            known[1] += missed
    return [(kind, str(judged), _of(missed, judged)) for kind, (judged, missed) in sums.items()]


def report(outcomes: Sequence[Outcome]) -> str:
    """Both tables."""
    return "\n\n".join(
        (
            markdown(_HEAD, rows(outcomes)),
            markdown(("Fault", "Judged", "Missed"), kinds(_counted(outcomes))),
        )
    )


def totals(outcomes: Sequence[Outcome]) -> Mapping[str, Any]:
    """Of all but those in 4 bits: how many were judged, missed and refused."""
    names = ("faults", "missed", "honest", "refused", "poor", "poor_refused")
    counted = _counted(outcomes)
    return {name: sum(getattr(each, name) for each in counted) for name in names}


# What 4 bits lose of random weights is of a fault's size: shown, and in no total.
_APART = "int4"

_INTRODUCTION = """\
# Benchmark of the judge

Written by `python -m benchmarks.judge --large --builds --write`. A build is proven by comparing
answers, so the rule that compares has two error rates. Faults from a seed are put into the answers
of honest variants: a slice zeroed, swapped, rolled, moved, scaled, made constant, replaced or
negated, rank lost, a part zeroed; each moves a slice by at least 10 % of its own scale, 30 % where
a variant computes in integers. Honest variants are other orders of sums, float16, bfloat16, int8
and int4. The seeds are not those with which the rule was tuned.

`Poor` are variants that are off by a fault's size themselves, where either verdict is right.
Slices of the original's rounding noise, or of fewer than 16 elements, get no fault (`Noise`), nor
do those on which the honest variant is off by half a fault at this seed or another (`Drowned`). A
scale is the upper end of its 99 % confidence interval; shares of one sum (softmax) have one scale.
What 4 bits lose of random weights is of a fault's size: int4 is shown, and in no total.

The judge before, one bound over a tensor and equal whole numbers, was measured with full sizes and
int4 in its totals, and by scales without their intervals.
"""

_BUILDS = """\
Builds of a detector whose head joins boxes in pixels and scores of 0 to 1, with calibration data;
what is shipped must still detect.
"""


def page(
    outcomes: Sequence[Outcome],
    found: Mapping[str, Any],
    before: Mapping[str, Any],
    builds: Sequence[Shipped] = (),
) -> str:
    """The page: the totals, before and now, then all that was judged."""
    sides = [("before", before), ("now", found)]
    lines = [
        (
            side,
            f"{each['seeds'][0]} to {each['seeds'][1]}",
            str(each["faults"]),
            _of(each["missed"], each["faults"]),
            str(each["honest"]),
            _of(each["refused"], each["honest"]),
        )
        for side, each in sides
        if each
    ]
    head = ("Judge", "Seeds", "Faults", "Missed", "Honest variants", "Refused")
    parts = [_INTRODUCTION, markdown(head, lines), ""]
    if builds:
        rows_of_builds = [(each.form, each.precision, each.found) for each in builds]
        parts += [_BUILDS, markdown(("Head", "Precision", "Came to"), rows_of_builds), ""]
    return "\n".join((*parts, report(outcomes), ""))
