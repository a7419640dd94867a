"""The page that `aotc profile learn --html` writes: distribution, buckets and plans, to explore."""

from __future__ import annotations

import html
from typing import Any

from aotc.contract.results.command_reports import LearnReport
from aotc.errors import AotcError, install_extra
from aotc.escaping import printable


def learn_page(answer: LearnReport) -> str:
    """One HTML page that needs nothing else; raises AOTC-I019 where plotly is not installed."""
    try:
        from plotly import graph_objects, subplots
    except ImportError as error:
        raise AotcError(
            "AOTC-I019",
            "plotly cannot be imported",
            found=str(error),
            fix=install_extra("html"),
        ) from None
    chosen = next(plan for plan in answer.plans if plan.chosen)
    titles = [f"requests by {name}" for name in answer.sizes] + ["expected cost of a request"]
    figure: Any = subplots.make_subplots(
        rows=len(titles), cols=1, subplot_titles=[_shown(title) for title in titles]
    )
    for row, (name, sizes) in enumerate(answer.sizes.items(), 1):
        figure.add_trace(
            graph_objects.Bar(
                x=[counted.size for counted in sizes],
                y=[counted.requests for counted in sizes],
                name=_shown(name),
            ),
            row=row,
            col=1,
        )
        for bucket in chosen.buckets.get(name, ()):
            figure.add_vline(
                x=bucket, line_dash="dash", annotation_text=str(bucket), row=row, col=1
            )
    labels = [
        _shown(f"{plan.name}, {plan.variants}" + (" (chosen)" if plan.chosen else ""))
        for plan in answer.plans
    ]
    figure.add_trace(
        graph_objects.Bar(
            x=[plan.ratio for plan in answer.plans],
            y=labels,
            orientation="h",
            name="to the best",
            customdata=[
                [plan.seconds * 1e3, plan.padding, _shown(str(dict(plan.buckets)))]
                for plan in answer.plans
            ],
            hovertemplate="%{x:.3f} of the best, %{customdata[0]:.3f} ms, "
            "padding %{customdata[1]:.1%}<br>%{customdata[2]}<extra></extra>",
        ),
        row=len(titles),
        col=1,
    )
    figure.update_yaxes(autorange="reversed", row=len(titles), col=1)
    figure.update_layout(
        title=_shown(f"{answer.path}: {answer.verdict}"),
        showlegend=False,
        height=360 * len(titles) + 18 * len(labels),
    )
    return str(figure.to_html(include_plotlyjs=True, full_html=True))


def _shown(text: str) -> str:
    """Text that plotly, which reads tags and links in what it shows, shows as it is."""
    return html.escape(printable(text))
