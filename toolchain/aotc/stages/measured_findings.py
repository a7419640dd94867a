"""What a build's measurements say to its user: no payload has it, as it is not reproducible."""

from __future__ import annotations

from aotc.contract.finding import Finding
from aotc.contract.results.build_evidence import Evidence
from aotc.stages.proving.repeated_runs import repeat_findings
from aotc.stages.retrying.other_forms import slowdown_findings
from aotc.stages.tuning.both_forms import form_findings
from aotc.stages.tuning.tuned_evidence import tuning_findings


def measured_findings(evidence: Evidence) -> tuple[Finding, ...]:
    """Tuning on another model, forms that were given up, both forms, and other bytes."""
    return (
        *tuning_findings(evidence),
        *slowdown_findings(evidence),
        *form_findings(evidence),
        *repeat_findings(evidence),
    )
