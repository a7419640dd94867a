"""What a build's measurements say to its user: no payload has it, as it is not reproducible."""

from __future__ import annotations

from aotc.contract.finding import Finding
from aotc.contract.profile import Profile
from aotc.contract.results.build_evidence import Evidence
from aotc.stages.proving.float64_answers import noise_findings
from aotc.stages.proving.repeated_runs import repeat_findings
from aotc.stages.retrying.other_forms import slowdown_findings
from aotc.stages.tuning.both_forms import form_findings
from aotc.stages.tuning.tuned_evidence import tuning_findings
from aotc.stages.tuning.tuned_options import precision_findings


def measured_findings(evidence: Evidence, profile: Profile) -> tuple[Finding, ...]:
    """Tuning on another model, precisions and forms that were given up, both forms of integers,
    other bytes, and limits below the noise.
    """
    return (
        *tuning_findings(evidence),
        *precision_findings(evidence, profile),
        *slowdown_findings(evidence),
        *form_findings(evidence),
        *repeat_findings(evidence),
        *noise_findings(evidence.noise),
    )
