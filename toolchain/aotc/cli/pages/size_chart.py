"""The requests by size of one dim as inline SVG, with the buckets that serve them."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Final

from aotc.contract.results.command_reports import SizeCount
from aotc.escaping import printable

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


def size_chart(dim: str, sizes: Sequence[SizeCount], buckets: Sequence[int]) -> str:
    """A bar for each size, or for each few neighbouring sizes if there are more than 400.

    A dashed line stands at each bucket, its size above it.  Both axes start at 0 and have titles.
    """
    step = _step(sizes)
    bars: dict[int, int] = {}
    for counted in sizes:
        start = counted.size - counted.size % step
        bars[start] = bars.get(start, 0) + counted.requests
    largest = max((*bars, *buckets, 1)) + step
    top_tick = _nice(max(bars.values(), default=1))
    left = max(len(f"{tick:,}") for tick in _ticks(top_tick)) * _DIGIT + 34
    rows = _label_rows(buckets, left, largest)
    above = _TOP + _LINE * (max(rows.values(), default=-1) + 1)
    height = above + _PLOT + _BOTTOM

    def x_at(size: float) -> float:
        return left + (WIDTH - _RIGHT - left) * size / largest

    def y_at(requests: float) -> float:
        return above + _PLOT * (1 - requests / top_tick)

    shown = printable(dim)
    name = html.escape(shown)
    most = max(bars, key=lambda size: bars[size], default=0)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Requests by {name}: '
        f'{len(sizes)} sizes, most requests at {most}, buckets {list(buckets)}">',
        *_vertical_axis(_ticks(top_tick), left, y_at(0), y_at(top_tick), step),
        *_horizontal_axis(shown, largest, left, y_at(0)),
    ]
    half = max((x_at(step) - x_at(0)) * 0.4, 0.5)
    for size, requests in bars.items():
        middle = x_at(size + (step - 1) / 2)
        span = f"{size}..{size + step - 1}" if step > 1 else str(size)
        parts.append(
            f'<rect class="bar" x="{middle - half:.1f}" y="{y_at(requests):.1f}" '
            f'width="{2 * half:.1f}" height="{y_at(0) - y_at(requests):.1f}">'
            f"<title>{name} {span}: {requests:,} requests</title></rect>"
        )
    for bucket in buckets:
        x, y = x_at(bucket), _TOP + _LINE * rows[bucket]
        parts.append(
            f'<line class="bucket" x1="{x:.1f}" y1="{y + 4:.1f}" x2="{x:.1f}" y2="{y_at(0):.1f}"/>'
            f'<text class="bucket" x="{x:.1f}" y="{y:.1f}">{bucket}</text>'
        )
    return "".join((*parts, "</svg>"))


def _step(sizes: Sequence[SizeCount]) -> int:
    """How many neighbouring sizes one bar stands for."""
    if len(sizes) <= _MAX_BARS:
        return 1
    return math.ceil((max(counted.size for counted in sizes) + 1) / _MAX_BARS)


def _nice(largest: int) -> int:
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
) -> list[str]:
    parts = []
    for tick in ticks:
        y = bottom - (bottom - top) * tick / ticks[-1]
        parts.append(
            f'<line class="grid" x1="{left:.1f}" y1="{y:.1f}" x2="{WIDTH - _RIGHT}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{left - 8:.1f}" y="{y + 4:.1f}">{tick:,}</text>'
        )
    title = f"requests, by {step} sizes" if step > 1 else "requests"
    middle = (top + bottom) / 2
    parts.append(
        f'<text class="axis" x="16" y="{middle:.1f}" '
        f'transform="rotate(-90 16 {middle:.1f})">{title}</text>'
    )
    return parts


def _horizontal_axis(name: str, largest: int, left: float, bottom: float) -> list[str]:
    parts = []
    for tick in _ticks(largest):
        if tick <= largest:
            x = left + (WIDTH - _RIGHT - left) * tick / largest
            parts.append(f'<text class="across" x="{x:.1f}" y="{bottom + 18:.1f}">{tick}</text>')
    middle = (left + WIDTH - _RIGHT) / 2
    # The page's heading has all of a long name.
    said = name if len(name) <= _LONGEST_TITLE else f"{name[:_LONGEST_TITLE]}..."
    text = html.escape(f"size of {said}")
    parts.append(f'<text class="axis" x="{middle:.1f}" y="{bottom + 44:.1f}">{text}</text>')
    return parts
