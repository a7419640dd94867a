"""Findings of what was measured: their numbers differ between hosts, and no payload has them."""

from __future__ import annotations

from aotc.contract.finding import Finding
from aotc.contract.profile import Profile
from aotc.contract.results.build_evidence import Evidence
from aotc.stages.proving.float64_answers import noise_findings
from aotc.stages.retrying.other_forms import slowdown_findings
from aotc.stages.tuning.tuned_evidence import tuning_findings
from aotc.stages.tuning.tuned_options import precision_findings


def evidence_findings(evidence: Evidence, profile: Profile) -> tuple[Finding, ...]:
    """What tuning chose without gain, what other forms cost, and limits below the noise."""
    return (
        *tuning_findings(evidence),
        *precision_findings(evidence, profile),
        *slowdown_findings(evidence),
        *noise_findings(evidence.noise),
    )
