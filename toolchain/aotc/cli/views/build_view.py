"""What `aotc build` shows: the outcome, and what the artifact says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.cli.render import duration, facts, findings_view, heading, short
from aotc.cli.views.inspection_view import identity, tables
from aotc.contract.results.reports import BuildReport, InspectReport, VariantSummary

if TYPE_CHECKING:
    from rich.console import RenderableType


def build_view(report: BuildReport, inspected: InspectReport) -> list[RenderableType]:
    """What was built, from its report and from the artifact itself."""
    only = " (development key, which only this user trusts)" if report.development_key else ""
    slowest = sorted(report.stages.items(), key=lambda item: -item[1])[:3]
    rows = identity(inspected, signer=report.identity or f"{short(report.key_id)}{only}")
    rows.append(
        (
            "took",
            f"{duration(report.seconds)}: "
            + ", ".join(f"{name} {duration(seconds)}" for name, seconds in slowest),
        )
    )
    unproven = [
        variant.name for variant in _variants_of(inspected) if variant.parity.status != "passed"
    ]
    status, style = "built, proven and signed", "green"
    if unproven:
        status, style = f"built and signed; NOT PROVEN: {', '.join(unproven)}", "yellow"
    if report.cached:
        status = f"from the build cache; {status}"
    known = {(finding.code, finding.what) for finding in inspected.findings}
    more = [finding for finding in report.findings if (finding.code, finding.what) not in known]
    return [
        heading(report.artifact, status, style),
        facts(rows),
        *tables(inspected),
        *findings_view(more),
    ]


def _variants_of(report: InspectReport) -> tuple[VariantSummary, ...]:
    return report.artifact.variants if report.artifact is not None else ()
