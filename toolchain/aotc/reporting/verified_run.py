"""The gates and breaches of a verification, as a report tells them."""

from __future__ import annotations

from aotc.contract.results.reports import Refusal, VerifyReport
from aotc.contract.results.run_report import Gate


def verified_gates(report: VerifyReport) -> tuple[Gate, ...]:
    """A gate for each numbered step, and for each variant on this host or target."""
    steps = tuple(
        Gate(
            name=step.step,
            subject=report.artifact,
            status="not-judged" if step.status == "not-run" else step.status,
            measured=step.detail,
        )
        for step in report.steps
    )
    # A variant that does not run here refuses nothing while another one does.
    lost = report.verdict in ("incompatible", "unverified")
    return steps + tuple(
        Gate(
            name="8 host compatibility",
            subject=f"variant {variant.name}",
            status="passed" if variant.runs else "failed" if lost else "not-judged",
            limit=f"runs on {report.target}",
            measured=", ".join(reason.code for reason in variant.reasons),
        )
        for variant in report.variants
    )


def verified_breaches(report: VerifyReport) -> tuple[Refusal, ...]:
    """Every reason why the artifact is refused; none where it is accepted."""
    if report.authentic and report.verdict in ("optimal", "degraded"):
        return ()
    found = dict.fromkeys(
        (item.code, item.where, item.what, item.found) for item in report.refusals
    )
    further = tuple(
        reason
        for variant in report.variants
        for reason in variant.reasons
        if (reason.code, reason.where, reason.what, reason.found) not in found
    )
    return (*report.refusals, *further)
