"""The page that `aotc profile learn --html` writes: distribution, buckets and plans."""

from __future__ import annotations

from typing import Final

from aotc.cli.pages.html_page import page, shown
from aotc.cli.pages.size_chart import size_chart
from aotc.cli.render import duration
from aotc.contract.results.command_reports import LearnReport, PlanRow

_STYLE: Final = """
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
    """One HTML page that needs nothing else: no script, no other file, no network."""
    chosen = next(plan for plan in answer.plans if plan.chosen)
    parts = [
        f"<h1>{shown(answer.path)}</h1><p>{shown(answer.verdict)}</p>",
        f"<p>{answer.requests:,} requests, {answer.coverage:.2%} accepted, "
        f"{answer.padding:.1%} of elements added by padding. "
        f"Costs: {shown(answer.backend)}, noise {answer.noise:.1%}.</p>",
    ]
    for name, sizes in answer.sizes.items():
        buckets = chosen.buckets.get(name, ())
        legend = f"<p>{_LEGEND}</p>" if buckets else ""
        parts.append(f"<section><h2>Requests by {shown(name)}</h2>")
        parts.append(f"{size_chart(name, sizes, buckets)}{legend}</section>")
    parts += _plans(answer)
    return page(answer.path, parts, _STYLE)


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
    name = shown(plan.name) + (" (chosen)" if plan.chosen else "")
    buckets = "; ".join(
        f"{shown(dim)} {', '.join(map(str, sizes))}" for dim, sizes in plan.buckets.items()
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
