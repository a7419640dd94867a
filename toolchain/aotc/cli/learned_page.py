"""The page that `aotc profile learn --html` writes: distribution, buckets and plans."""

from __future__ import annotations

import base64
import hashlib
import html
import math
from collections.abc import Iterable, Sequence
from typing import Final

from aotc.base.text import duration, printable
from aotc.spec.command_reports import LearnReport, PlanRow, SizeCount

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #55636f; --line: #d5dbe1;
  --bar: #3f73ad; --mark: #b4481a; --best: #e9f4ec; --paper: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4eaf0; --soft: #a3b0bc; --line: #34404c;
  --bar: #6fa4dd; --mark: #f09a6b; --best: #17301f; --paper: #11161c; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: var(--ink);
  background: var(--paper); font: 15px/1.45 system-ui, "Segoe UI", "Helvetica Neue", Arial,
  sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; }
@media print { body { max-width: none; } }
svg { width: 100%; height: auto; display: block; }
svg text { font-size: 12px; fill: var(--soft); text-anchor: middle; }
svg text.tick { text-anchor: end; } svg text.axis { fill: var(--ink); font-size: 13px; }
svg text.bucket { fill: var(--mark); font-weight: 600; }
.grid { stroke: var(--line); } .bar { fill: var(--bar); }
.bucket { stroke: var(--mark); stroke-dasharray: 4 3; } text.bucket { stroke: none; }
td.buckets { width: 36%; } td.cost { width: 18%; } td.cost svg { height: 1.1rem; }
tr.chosen { background: var(--best); font-weight: 600; }
"""
_LEGEND: Final = "Dashed lines are the buckets of the chosen plan."


def learn_page(answer: LearnReport) -> str:
    """One HTML page, in ASCII, that needs nothing else: no script, no other file, no network."""
    chosen = next(plan for plan in answer.plans if plan.chosen)
    parts = [
        f"<h1>{_shown(answer.path)}</h1><p>{_shown(answer.verdict)}</p>",
        f"<p>{answer.requests:,} requests, {answer.coverage:.2%} accepted, "
        f"{answer.padding:.1%} of elements added by padding. "
        f"Costs: {_shown(answer.backend)}, noise {answer.noise:.1%}{_new_sizes(answer)}.</p>",
    ]
    for name, sizes in answer.sizes.items():
        buckets = chosen.buckets.get(name, ())
        legend = f"<p>{_LEGEND}</p>" if buckets else ""
        parts.append(f"<section><h2>Requests by {_shown(name)}</h2>")
        parts.append(f"{size_chart(name, sizes, buckets)}{legend}</section>")
    parts += _plans(answer)
    return _page(answer.path, parts)


def _new_sizes(answer: LearnReport) -> str:
    if not answer.new_size_seconds:
        return ""
    longer = duration(answer.new_size_seconds)
    return f"; a size that is not fixed takes {longer} more at its first call"


def _plans(answer: LearnReport) -> list[str]:
    worst = max(plan.ratio for plan in answer.plans)
    return [
        "<section><h2>Plans, by the expected cost of a request</h2><table><thead><tr>",
        '<th>plan</th><th>buckets</th><th class="number">variants</th>',
        '<th class="number">a request</th><th>cost, the best plan being 1</th>',
        '<th class="number">padding</th><th class="number">accepted</th></tr></thead><tbody>',
        *(_plan(plan, worst) for plan in answer.plans),
        "</tbody></table></section>",
    ]


def _plan(plan: PlanRow, worst: float) -> str:
    name = _shown(plan.name) + (" (chosen)" if plan.chosen else "")
    buckets = "; ".join(
        f"{_shown(dim)} {', '.join(map(str, sizes))}" for dim, sizes in plan.buckets.items()
    )
    kind = ' class="chosen"' if plan.chosen else ""
    cost = f"{plan.ratio:.3f}"
    width = 100 * plan.ratio / worst
    bar = (
        f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{cost}">'
        f'<rect class="bar" x="0" y="1" width="{width:.2f}" height="8"/></svg>{cost}'
    )
    return (
        f'<tr{kind}><td>{name}</td><td class="buckets">{buckets}</td>'
        f'<td class="number">{plan.variants}</td><td class="number">{duration(plan.seconds)}</td>'
        f'<td class="cost">{bar}</td><td class="number">{plan.padding:.1%}</td>'
        f'<td class="number">{plan.coverage:.1%}</td></tr>'
    )


def _page(title: str, body: Iterable[str]) -> str:
    """A whole page of HTML parts, with a policy that admits its style and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    text = "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_shown(title)}</title><style>{_STYLE}</style></head><body><main>",
            *body,
            "</main></body></html>\n",
        )
    )
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _shown(text: str) -> str:
    """Text of others as text of a page: printable, and without tags."""
    return html.escape(printable(text))


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
    top_tick = _axis_end(max(bars.values(), default=1))
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
