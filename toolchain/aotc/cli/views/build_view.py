"""What `aotc build -v` shows: the outcome, and what the artifact says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.cli.render import duration, facts, findings_view, heading, short
from aotc.cli.result_styles import FAILED, PASSED
from aotc.cli.views.inspection_view import identity, tables
from aotc.contract.results.reports import BuildReport, InspectReport, VariantSummary

if TYPE_CHECKING:
    from rich.console import RenderableType


def build_view(report: BuildReport, inspected: InspectReport) -> list[RenderableType]:
    """What was built, from its report and from the artifact itself."""
    status, style = outcome(report, inspected)
    rows = [*identity(inspected, signer=signer_text(report)), ("took", took(report))]
    known = {(finding.code, finding.what) for finding in inspected.findings}
    more = [finding for finding in report.findings if (finding.code, finding.what) not in known]
    return [
        heading(report.artifact, status, style),
        facts(rows),
        *tables(inspected),
        *findings_view(more),
    ]


def outcome(report: BuildReport, inspected: InspectReport) -> tuple[str, str]:
    """How the build ended, in words, with its colour."""
    unproven = [
        variant.name for variant in _variants_of(inspected) if variant.parity.status != "passed"
    ]
    status, style = "built, proven and signed", PASSED
    if unproven:
        status, style = f"built and signed; NOT PROVEN: {', '.join(unproven)}", FAILED
    return (f"from the build cache; {status}" if report.cached else status), style


def signer_text(report: BuildReport) -> str:
    """Whose key signed it."""
    only = " (development key, which only this user trusts)" if report.development_key else ""
    return report.identity or f"{short(report.key_id)}{only}"


def took(report: BuildReport) -> str:
    """How long it took, with the three longest stages."""
    slowest = sorted(report.stages.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{name} {duration(seconds)}" for name, seconds in slowest)
    return f"{duration(report.seconds)}: {parts}"


def _variants_of(report: InspectReport) -> tuple[VariantSummary, ...]:
    return report.artifact.variants if report.artifact is not None else ()
