"""Benchmarks, verifications, fleets and earlier artifacts as a report tells them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aotc.base.codes import REASONS
from aotc.base.errors import AotcError
from aotc.report.sheets.fleets import cell_figures, of_cell
from aotc.spec.bench_reports import BenchReport, Verdict
from aotc.spec.codec import encode
from aotc.spec.fleet import CellResult, FleetReport
from aotc.spec.matrix_report import CompatibilityReport
from aotc.spec.payload import Finding
from aotc.spec.reports import ArtifactSummary, Refusal, VerifyReport, refused_because
from aotc.spec.run_report import (
    PROOF,
    SIZE,
    Beside,
    Gate,
    GateStatus,
    Measurement,
    headline_measurements,
    task_measurements,
)

if TYPE_CHECKING:
    from aotc.spec.trust_policy import Sealer, Signer

# The measurements of a benchmark, and its baseline as a gate, as a report tells them.


_STATUS: Final[Mapping[Verdict, GateStatus]] = {
    "slower": "failed",
    "within": "passed",
    "inconclusive": "not-judged",
}


def benchmark_measurements(report: BenchReport) -> tuple[Measurement, ...]:
    """Times of each side, and how the artifact compares with the model if one was given."""
    sides = [
        Measurement(name=name, subject=side.name, value=value, unit="s")
        for side in report.timings
        for name, value in (
            ("load", side.load_seconds),
            ("first run", side.first_run_seconds),
            ("median", side.median_seconds),
            ("lower quartile", side.lower_seconds),
            ("upper quartile", side.upper_seconds),
            *side.latency_seconds.items(),
        )
    ]
    sides += [
        Measurement(
            name="throughput", subject=side.name, value=side.calls_per_second, unit="runs/s"
        )
        for side in report.timings
        if side.calls_per_second is not None
    ]
    ratios = (
        ("load", report.load_ratio),
        ("first answer", report.first_ratio),
        ("latency", report.latency_ratio),
    )
    sides += [
        Measurement(name=name, subject="artifact / model", value=value, unit="times")
        for name, value in ratios
        if value is not None
    ]
    return tuple(sides)


def comparison_gate(report: BenchReport) -> tuple[Gate, ...]:
    """The baseline as a gate; none without one.  What is not shown is not judged."""
    compared = report.comparison
    if compared is None:
        return ()
    return (
        Gate(
            name="baseline",
            subject=report.artifact,
            status=_STATUS[compared.verdict],
            limit=f"median latency at most {compared.max_ratio:g} times "
            f"that of {compared.baseline}",
            measured=_interval(report),
        ),
    )


def slower_breach(report: BenchReport) -> tuple[Refusal, ...]:
    """AOTC-I067 where the artifact is slower than its baseline."""
    compared = report.comparison
    if compared is None or not compared.code:
        return ()
    return (
        Refusal(
            code=compared.code,
            what=f"the artifact is slower than its baseline: {compared.reason}",
            where=report.artifact,
            expected=f"<= {compared.max_ratio:g} times {compared.baseline}",
            found=_interval(report),
            fix=REASONS[compared.code].fix,
        ),
    )


def _interval(report: BenchReport) -> str:
    compared = report.comparison
    assert compared is not None
    return (
        f"{compared.ratio:.3f}, {compared.confidence:.0%} interval "
        f"{compared.lower:.3f} to {compared.upper:.3f}, {compared.verdict}"
    )


# The gates and breaches of a verification, as a report tells them.


def verified_gates(report: VerifyReport) -> tuple[Gate, ...]:
    """A gate for each numbered step, and for each variant its proof and this host or target."""
    steps = tuple(
        Gate(
            name=step.step,
            subject=report.artifact,
            status="not-judged" if step.status == "not-run" else step.status,
            measured=step.detail,
        )
        for step in report.steps
        # Without a policy there is nothing to judge by one, whatever the outcome.
        if step.status != "not-run"
        or not step.step.startswith("7 ")
        or not (report.authentic or step.detail)
    )
    # A variant that does not run here refuses nothing while another one does.
    lost = report.verdict in ("incompatible", "unverified")
    proofs = (
        Gate(
            name=PROOF,
            subject=f"variant {variant.name}",
            status="not-judged" if variant.unproven else "passed",
            measured=f"not proven: {variant.unproven}" if variant.unproven else "proven",
        )
        for variant in report.variants
    )
    hosts = (
        Gate(
            name="8 host compatibility",
            subject=f"variant {variant.name}",
            status="passed" if variant.runs else "failed" if lost else "not-judged",
            limit=f"runs on {report.target}",
            measured=", ".join(reason.code for reason in variant.reasons),
        )
        for variant in report.variants
    )
    return (*steps, *proofs, *hosts)


def verified_breaches(report: VerifyReport) -> tuple[Refusal, ...]:
    """Every reason why the artifact is refused; none where it is accepted."""
    if report.ok:
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


# Fleets: a gate for each cell.


def fleet_judged(report: FleetReport) -> dict[str, Any]:
    """What a run of a fleet is told with: gates by cell, breaches, findings, and the whole answer.

    A cell that need not be built is noticed where it was not.  Merged artifacts are gates, too.
    """
    breaches = [
        of_cell(refusal, each.cell.name)
        for each in report.cells
        if each.is_lost
        for refusal in each.refusals
    ]
    breaches += [
        of_cell(refusal, each.output) for each in report.merged for refusal in each.refusals
    ]
    noticed = [
        Finding(code=refusal.code, what=told.what, where=told.where)
        for each in report.cells
        if not each.is_lost
        for refusal in each.refusals
        for told in (of_cell(refusal, each.cell.name),)
    ]
    noticed += [
        Finding(
            code=found.code,
            what=f"{found.where}: {found.what}" if found.where else found.what,
            where=each.cell.name,
        )
        for each in report.cells
        for found in each.findings
    ]
    return {
        "gates": (*map(_cell_gate, report.cells), *_merged_gates(report)),
        "breaches": breaches,
        "findings": (*report.findings, *noticed),
        "answer": encode(report, full=True),
    }


def _cell_gate(each: CellResult) -> Gate:
    status: GateStatus = "passed" if each.outcome in ("built", "reused") else "not-judged"
    codes = ", ".join(dict.fromkeys(refusal.code for refusal in each.refusals))
    said = ", ".join(filter(None, (each.outcome, *cell_figures(each))))
    if status != "passed":
        said = f"{each.outcome}: {codes}" if codes else each.outcome
        said, status = (said, "failed") if each.is_lost else (f"{said}; not required", status)
    return Gate(name="build", subject=each.cell.name, status=status, measured=said)


def _merged_gates(report: FleetReport) -> Iterator[Gate]:
    for each in report.merged:
        codes = ", ".join(dict.fromkeys(refusal.code for refusal in each.refusals))
        yield Gate(
            name="merge",
            subject=each.output,
            status="failed" if each.refusals else "passed",
            measured=codes or f"of {', '.join(each.cells)}",
        )


def matrix_judged(report: CompatibilityReport) -> dict[str, Any]:
    """What a run of a compatibility matrix is told with: a gate for each artifact on each host."""
    failed = {each.where for each in report.failed}
    gates = []
    for each in report.cells:
        lost = bool(failed & {each.name, each.artifact})
        well = each.verdict in ("optimal", "degraded")
        codes = ", ".join(each.codes) if each.verdict != "optimal" else ""
        gates.append(
            Gate(
                name="host compatibility",
                subject=each.name,
                status="failed" if lost else "passed" if well else "not-judged",
                limit="" if report.required in ("none", "some") else f"{report.required} or better",
                measured=f"{each.verdict}: {codes}" if codes else each.verdict,
            )
        )
    return {
        "gates": gates,
        "breaches": report.failed,
        "findings": (
            *report.findings,
            *(
                Finding(code=found.code, what=f"{found.where}: {found.what}", where=each.name)
                for each in report.cells
                for found in each.findings
            ),
        ),
        "answer": encode(report, full=True),
    }


# An earlier artifact, whose figures a report shows beside those of its run.


def artifact_beside(path: Path, signer: Path | Signer | Sealer | None) -> Beside:
    """The figures of the artifact at a path, and whether it verifies.

    It does by this user's trust, or signed by who signs the new one.  What cannot be read has no
    figures.  Raises AOTC-I001 if there is nothing.
    """
    from aotc.tools.inspect import inspect

    refused = _refused(path, signer)
    try:
        found = inspect(path)
    except AotcError as error:
        return Beside(artifact=str(path), refused=refused or error.line())
    artifact = found.artifact
    if artifact is None:
        return Beside(artifact=str(path), refused=refused or "not an artifact")
    return Beside(
        artifact=str(path),
        artifact_id=artifact.artifact_id,
        refused=refused,
        measurements=tuple(_figures(artifact)),
    )


def _refused(path: Path, signer: Path | Signer | Sealer | None) -> str:
    from aotc.spec.trust_policy import Sealer
    from aotc.trust.gate import verify
    from aotc.trust.policy.host_trust import Trust
    from aotc.trust.signers import load_signer, own_anchors

    # An identity is that of one run, and was another one's then.
    own = () if isinstance(signer, Sealer) else own_anchors(load_signer(signer), "this build's key")
    reports = []
    for trust in (Trust.of(own), None) if own else (None,):
        reports.append(verify(path, trust=trust, unsafe_no_trust_state=True))
        if reports[-1].authentic:
            return ""
    # Of what somebody signed who counts, what else is wrong with it.
    return refused_because(next((each for each in reports if each.signers), reports[-1]))


def _figures(artifact: ArtifactSummary) -> Iterator[Measurement]:
    yield Measurement(name=SIZE, subject="payload", value=artifact.payload_bytes, unit="B")
    for variant in artifact.variants:
        where = f"variant {variant.name}"
        yield from headline_measurements(where, variant.run_seconds, variant.worst)
        if (task := variant.task) is not None:
            yield from task_measurements(task, where)
