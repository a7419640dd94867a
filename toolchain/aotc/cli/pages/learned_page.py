"""The page that `aotc profile learn --html` writes: distribution, buckets and plans."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable
from typing import Final

from aotc.cli.pages.size_chart import size_chart
from aotc.cli.render import duration
from aotc.contract.results.command_reports import LearnReport, PlanRow
from aotc.escaping import printable

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
    if not answer.new_size:
        return ""
    return f"; a size that is not fixed takes {duration(answer.new_size)} more at its first call"


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
