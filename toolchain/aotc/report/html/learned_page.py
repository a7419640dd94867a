"""The page that `aotc profile learn --html` writes: plans, and the requests with the buckets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final
from xml.etree.ElementTree import Element

from aotc.base.text import printable
from aotc.report.html.page import elements, page, section, shown_name, tag
from aotc.report.sheets.learned import plans_sheet
from aotc.spec.command_reports import LearnReport, SizeCount


def learn_page(answer: LearnReport) -> str:
    """One HTML page, in ASCII, that needs nothing else: no script, no other file, no network."""
    chosen = next(plan for plan in answer.plans if plan.chosen)
    charts = (
        section(
            f"size-{number}",
            f"Requests by {shown_name(name)}",
            size_chart(name, sizes, buckets := chosen.buckets.get(name, ())),
            tag("p", "Dashed lines are the buckets of the chosen plan.") if buckets else None,
        )
        for number, (name, sizes) in enumerate(answer.sizes.items())
    )
    plans = section("plans", "Plans", *elements(plans_sheet(answer)))
    return page(answer.path, (tag("p", answer.verdict),), (plans, *charts), script=False)


# The requests by size of one dim as inline SVG, with the buckets that serve them.


WIDTH: Final = 900
_PLOT: Final = 240
_RIGHT, _BOTTOM = 28, 58
# Width of a digit of 12 px, in the widest of the usual fonts.
_DIGIT: Final = 7.6
_LINE: Final = 16
_TOP: Final = 16
_MAX_BARS: Final = 400
_TICKS: Final = 8
_LONGEST_TITLE: Final = 60


def size_chart(dim: str, sizes: Sequence[SizeCount], buckets: Sequence[int]) -> Element:
    """A bar for each size, or for each few neighbouring sizes if there are more than 400.

    A dashed line stands at each bucket, its size above it.  Both axes start at 0 and have titles.
    """
    step = _step(sizes)
    bars: dict[int, int] = {}
    for counted in sizes:
        start = counted.size - counted.size % step
        bars[start] = bars.get(start, 0) + counted.requests
    largest = max((*bars, *buckets, 1)) + step
    top_tick = _axis_end(max(bars.values(), default=1))
    left = max(len(f"{tick:,}") for tick in _ticks(top_tick)) * _DIGIT + 34
    rows = _label_rows(buckets, left, largest)
    above = _TOP + _LINE * (max(rows.values(), default=-1) + 1)
    height = above + _PLOT + _BOTTOM

    def x_at(size: float) -> float:
        return left + (WIDTH - _RIGHT - left) * size / largest

    def y_at(requests: float) -> float:
        return above + _PLOT * (1 - requests / top_tick)

    name = printable(dim)
    most = max(bars, key=lambda size: bars[size], default=0)
    said = f"Requests by {shown_name(name)}: {len(sizes)} sizes, most requests at {most}, "
    chart = tag(
        "svg",
        *_vertical_axis(_ticks(top_tick), left, y_at(0), y_at(top_tick), step),
        *_horizontal_axis(name, largest, left, y_at(0)),
        class_="sizes",
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=f"{said}buckets {list(buckets)}",
    )
    half = max((x_at(step) - x_at(0)) * 0.4, 0.5)
    for size, requests in bars.items():
        middle = x_at(size + (step - 1) / 2)
        span = f"{size}..{size + step - 1}" if step > 1 else str(size)
        bar = tag("rect", class_="bar", x=middle - half, y=y_at(requests))
        bar.set("width", f"{2 * half:.1f}")
        bar.set("height", f"{y_at(0) - y_at(requests):.1f}")
        bar.append(tag("title", f"{shown_name(name)} {span}: {requests:,} requests"))
        chart.append(bar)
    for bucket in buckets:
        x, y = x_at(bucket), _TOP + _LINE * rows[bucket]
        chart.append(tag("line", class_="bucket", x1=x, y1=y + 4.0, x2=x, y2=y_at(0)))
        chart.append(tag("text", str(bucket), class_="bucket", x=x, y=float(y)))
    return chart


def _step(sizes: Sequence[SizeCount]) -> int:
    """How many neighbouring sizes one bar stands for."""
    if len(sizes) <= _MAX_BARS:
        return 1
    return math.ceil((max(counted.size for counted in sizes) + 1) / _MAX_BARS)


def _axis_end(largest: int) -> int:
    """The end of an axis to `largest`: a multiple of a round step."""
    step = _round_step(largest)
    return step * math.ceil(largest / step)


def _round_step(largest: int) -> int:
    """1, 2 or 5 times a power of ten, for at most `_TICKS` ticks up to `largest`."""
    power: int = 10 ** max(len(str(max(largest, 1))) - 2, 0)
    return next(
        power * factor for factor in (1, 2, 5, 10, 20, 50) if largest <= power * factor * _TICKS
    )


def _ticks(end: int) -> range:
    return range(0, end + 1, _round_step(end))


def _label_rows(buckets: Sequence[int], left: float, largest: int) -> dict[int, int]:
    """The line that each bucket's label stands in, so that none covers another."""
    ends: list[float] = []
    rows = {}
    for bucket in sorted(buckets):
        middle = left + (WIDTH - _RIGHT - left) * bucket / largest
        half = len(str(bucket)) * _DIGIT / 2 + 3
        row = next((row for row, end in enumerate(ends) if end <= middle - half), len(ends))
        ends[row : row + 1] = [middle + half]
        rows[bucket] = row
    return rows


def _vertical_axis(
    ticks: Sequence[int], left: float, bottom: float, top: float, step: int
) -> Iterator[Element]:
    for tick in ticks:
        y = bottom - (bottom - top) * tick / ticks[-1]
        yield tag("line", class_="rule", x1=left, y1=y, x2=WIDTH - _RIGHT, y2=y)
        yield tag("text", f"{tick:,}", class_="tick", x=left - 8, y=y + 4)
    middle = (top + bottom) / 2
    title = f"requests, by {step} sizes" if step > 1 else "requests"
    turned = f"rotate(-90 16 {middle:.1f})"
    yield tag("text", title, class_="axis", x=16, y=middle, transform=turned)


def _horizontal_axis(name: str, largest: int, left: float, bottom: float) -> Iterator[Element]:
    for tick in _ticks(largest):
        if tick <= largest:
            x = left + (WIDTH - _RIGHT - left) * tick / largest
            yield tag("text", str(tick), x=x, y=bottom + 18)
    # The page's heading has all of a long name.
    said = name if len(name) <= _LONGEST_TITLE else f"{name[:_LONGEST_TITLE]}..."
    middle = (left + WIDTH - _RIGHT) / 2
    yield tag("text", f"size of {said}", class_="axis", x=middle, y=bottom + 44)
