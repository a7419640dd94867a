"""What `aotc trust` answers of a policy that was made, changed, checked or signed."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.contract.finding import Finding
from aotc.contract.results.trust_reports import TrustReport
from aotc.verification.policy.policy_document import PolicyFile


def policy_answer(
    file: PolicyFile,
    *,
    signed_by: Sequence[str] = (),
    counting: Sequence[str] | None = None,
    threshold: int | None = None,
    findings: Sequence[Finding] = (),
    bundle: str = "",
    checked: bool = False,
) -> TrustReport:
    """A policy as it is now: its rules, the keys that count, and those that it revokes."""
    policy = file.policy
    revoked = dict.fromkeys(policy.revoked.keys, "")
    revoked |= {each.id: each.revoked for each in policy.signers() if each.revoked}
    return TrustReport(
        file=str(file.path),
        name=policy.name,
        sequence=policy.sequence,
        sha256=file.sha256,
        expires=policy.expires,
        rules=tuple(rule.name for rule in policy.rules),
        keys=tuple(each.id for each in policy.signers() if each.id not in revoked),
        revoked_keys=revoked,
        revoked_artifacts=policy.revoked.artifacts,
        signed_by=tuple(signed_by),
        counting=None if counting is None else tuple(counting),
        threshold=threshold,
        findings=tuple(findings),
        bundle=bundle,
        checked=checked,
    )
