"""What a build answers with: its artifact, and what was measured."""

from __future__ import annotations

from aotc.contract.finding import Finding
from aotc.contract.results.build_evidence import Evidence
from aotc.contract.results.reports import BuildReport
from aotc.contract.results.tuning import TuningCandidate
from aotc.stages.clock import Clock
from aotc.stages.types import SignedArtifact


def build_report(
    signed: SignedArtifact,
    evidence: Evidence,
    findings: tuple[Finding, ...],
    tuning: tuple[TuningCandidate, ...],
    clock: Clock,
    *,
    cached: bool,
) -> BuildReport:
    """The report of a build whose artifact is at its final path."""
    return BuildReport(
        artifact=str(signed.path),
        artifact_id=signed.artifact.artifact_id,
        payload_bytes=signed.artifact.payload_bytes,
        key_id=signed.signed_by.key_id,
        identity=signed.signed_by.identity,
        development_key=signed.signed_by.development_key,
        variants=evidence.variants,
        findings=findings,
        tuning=tuning,
        cached=cached,
        stages=clock.seconds,
        seconds=clock.elapsed(),
    )
