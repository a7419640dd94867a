"""What `aotc profile learn` shows: the plans compared, and the traffic with the buckets on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.base.text import duration
from aotc.cli.terminal import PASSED, facts, heading, histogram, listing, section
from aotc.spec.command_reports import LearnReport, PlanRow

if TYPE_CHECKING:
    from rich.console import RenderableType

    from aotc.spec.command_reports import SizeCount


_ROWS = 24
# Of a row of a distribution, in sizes.
_WIDTHS = (
    *(1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 256, 512, 1000, 1024),
    *(10**4, 10**5),
)
_LISTED = 10


def learn_view(answer: LearnReport) -> list[RenderableType]:
    """The verdict, the comparison, the distribution of each dim, and the profile's dims."""
    from aotc.spec.codec import encode
    from aotc.spec.yaml import yaml_text

    chosen = next(plan for plan in answer.plans if plan.chosen)
    parts = [
        heading(answer.path, answer.verdict, PASSED),
        facts(
            [
                ("requests", f"{answer.requests}, {answer.coverage:.2%} accepted"),
                ("planned for", ", ".join(answer.dims)),
                ("never vary", ", ".join(f"{name}={size}" for name, size in answer.fixed.items())),
                ("follow", "; ".join(f"{k} = {' + '.join(v)}" for k, v in answer.follows.items())),
                (
                    "keep a range",
                    ", ".join(f"{k} {low}..{high}" for k, (low, high) in answer.ranges.items()),
                ),
                ("accepts", _accepted(answer)),
                ("padding", f"{answer.padding:.1%} of elements added"),
                ("measured on", answer.backend),
                ("new sizes", _new_sizes(answer)),
                ("noise", f"{answer.noise:.1%}, drift {answer.drift:.1%}"),
            ]
        ),
        section(
            "plan",
            ("variants", "a request", "to the best", "padding", ""),
            [_plan(plan) for plan in answer.plans],
        ),
    ]
    for name, sizes in answer.sizes.items():
        parts.append(_histogram(name, sizes, chosen))
    fields = {name: encode(answer.profile.dims[name]) for name in answer.profile.dims}
    parts.append(listing(yaml_text({"dims": fields}).rstrip().split("\n")))
    return parts


def _accepted(answer: LearnReport) -> str:
    spans = [f"{name} {answer.profile.dims[name].text()}" for name in answer.dims]
    return f"{', '.join(spans)}, as recorded; raise max in the profile for more"


def _new_sizes(answer: LearnReport) -> str:
    """Empty if their first call takes no longer."""
    return (
        f"{duration(answer.new_size_seconds)} more at the first call"
        if answer.new_size_seconds
        else ""
    )


def _plan(plan: PlanRow) -> tuple[str, ...]:
    refused = f"refuses {1 - plan.coverage:.1%}" if plan.coverage < 1 else ""
    buckets = "; ".join(_listed(sizes) for sizes in plan.buckets.values())
    return (
        f"{plan.name} {buckets}".strip(),
        str(plan.variants),
        duration(plan.seconds),
        f"{plan.ratio:.3f}",
        f"{plan.padding:.1%}",
        ", ".join(filter(None, ("chosen" if plan.chosen else "", refused))),
    )


def _listed(sizes: tuple[int, ...]) -> str:
    text = ", ".join(str(size) for size in sizes[:_LISTED])
    return f"{text}, ..." if len(sizes) > _LISTED else text


def _histogram(name: str, sizes: tuple[SizeCount, ...], chosen: PlanRow) -> RenderableType:
    """Requests by spans of sizes, with the chosen buckets where they lie."""
    buckets = chosen.buckets.get(name, ())
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
    return histogram(f"sizes of {name}", ("requests", "", "buckets"), rows)


def _spans(low: int, high: int) -> list[tuple[int, int]]:
    """Spans of equal width, a power of two or ten sizes wide, of which there are not too many."""
    for width in _WIDTHS:
        first, last = low // width, high // width
        if last - first < _ROWS:
            break
    return [
        (max(low, at * width), min(high, at * width + width - 1)) for at in range(first, last + 1)
    ]
