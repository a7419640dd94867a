"""What `aotc profile learn` shows: the plans compared, and the traffic with the buckets on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.base.text import duration
from aotc.report.sheet import PASSED, Bars, Facts, Heading, Lines, Sheet, first, passed, table
from aotc.spec.command_reports import LearnReport, PlanRow
from aotc.spec.shapes import sizes_in_words

if TYPE_CHECKING:
    from aotc.spec.command_reports import SizeCount


_ROWS = 24
# Of a row of a distribution, in sizes.
_WIDTHS = (
    *(1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 256, 512, 1000, 1024),
    *(10**4, 10**5),
)
_LISTED = 10


def learn_view(answer: LearnReport) -> Sheet:
    """The verdict, the comparison, the distribution of each dim, and the profile's dims."""
    from aotc.spec.codec import encode
    from aotc.spec.yaml import yaml_text

    fields = {name: encode(answer.profile.dims[name]) for name in answer.profile.dims}
    return [
        Heading(answer.path, answer.verdict, PASSED),
        *plans_sheet(answer),
        *distributions(answer),
        Lines(yaml_text({"dims": fields}).rstrip().split("\n")),
    ]


def plans_sheet(answer: LearnReport) -> Sheet:
    """What was learned, and the plans by the expected cost of a request."""
    ranges = [f"{name} {low}..{high}" for name, (low, high) in answer.ranges.items()]
    return [
        Facts(
            [
                ("requests", f"{answer.requests}, {answer.coverage:.2%} accepted"),
                ("planned for", ", ".join(answer.dims)),
                ("never vary", sizes_in_words(answer.fixed)),
                ("follow", "; ".join(f"{k} = {' + '.join(v)}" for k, v in answer.follows.items())),
                ("keep a range", ", ".join(ranges)),
                ("accepts", _accepted(answer)),
                ("padding", f"{answer.padding:.1%} of elements added"),
                ("measured on", answer.backend),
                ("new sizes", _new_sizes(answer)),
                ("noise", f"{answer.noise:.1%}, drift {answer.drift:.1%}"),
            ]
        ),
        table(
            "plan",
            answer.plans,
            ("plan", _plan),
            ("#variants", lambda plan: str(plan.variants)),
            ("#a request", lambda plan: duration(plan.seconds)),
            ("#to the best", lambda plan: f"{plan.ratio:.3f}"),
            ("#padding", lambda plan: f"{plan.padding:.1%}"),
            ("", _chosen),
        ),
    ]


def distributions(answer: LearnReport) -> Sheet:
    """The requests by spans of sizes, for each dim, with the chosen buckets where they lie."""
    chosen = next(plan for plan in answer.plans if plan.chosen)
    return [
        _bars(name, sizes, chosen.buckets.get(name, ())) for name, sizes in answer.sizes.items()
    ]


def _accepted(answer: LearnReport) -> str:
    spans = [f"{name} {answer.profile.dims[name].text()}" for name in answer.dims]
    return f"{', '.join(spans)}, as recorded; raise max in the profile for more"


def _new_sizes(answer: LearnReport) -> str:
    """Empty if their first call takes no longer."""
    longer = answer.new_size_seconds
    return f"{duration(longer)} more at the first call" if longer else ""


def _plan(plan: PlanRow) -> str:
    buckets = (first(list(map(str, sizes)), _LISTED) for sizes in plan.buckets.values())
    return f"{plan.name} {'; '.join(buckets)}".strip()


def _chosen(plan: PlanRow) -> str:
    refused = f"refuses {1 - plan.coverage:.1%}" if plan.coverage < 1 else ""
    return passed(", ".join(filter(None, ("chosen", refused)))) if plan.chosen else refused


def _bars(name: str, sizes: tuple[SizeCount, ...], buckets: tuple[int, ...]) -> Bars:
    spans = _spans(min(counted.size for counted in sizes), max(sizes[-1].size, *buckets, 0))
    held = [
        sum(counted.requests for counted in sizes if low <= counted.size <= high)
        for low, high in spans
    ]
    rows = [
        (
            f"{low}..{high}" if low < high else str(low),
            requests,
            ", ".join(str(bucket) for bucket in buckets if low <= bucket <= high),
        )
        for (low, high), requests in zip(spans, held, strict=True)
    ]
    return Bars(f"sizes of {name}", ("requests", "", "buckets"), rows)


def _spans(low: int, high: int) -> list[tuple[int, int]]:
    """Spans of equal width, a power of two or ten sizes wide, of which there are not too many."""
    for width in _WIDTHS:
        start, last = low // width, high // width
        if last - start < _ROWS:
            break
    return [
        (max(low, at * width), min(high, at * width + width - 1)) for at in range(start, last + 1)
    ]
