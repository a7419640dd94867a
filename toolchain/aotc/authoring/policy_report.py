"""The report of `aotc trust` about a policy that was made, changed, checked or signed."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.contract.finding import Finding
from aotc.contract.results.trust_reports import TrustReport
from aotc.verification.policy.policy_document import PolicyFile


def policy_report(
    file: PolicyFile,
    *,
    signed_by: Sequence[str] = (),
    counting: Sequence[str] | None = None,
    threshold: int | None = None,
    findings: Sequence[Finding] = (),
    bundle: str = "",
    checked: bool = False,
) -> TrustReport:
    """The report about the policy of a file: its rules, its valid keys, and its revoked keys.

    The keyword arguments become the fields of the report with the same names.
    """
    policy = file.policy
    revoked = dict.fromkeys(policy.revoked.keys, "")
    revoked |= {signer.id: signer.revoked for signer in policy.signers() if signer.revoked}
    return TrustReport(
        file=str(file.path),
        name=policy.name,
        sequence=policy.sequence,
        sha256=file.sha256,
        expires=policy.expires,
        rules=tuple(rule.name for rule in policy.rules),
        keys=tuple(signer.id for signer in policy.signers() if signer.id not in revoked),
        revoked_keys=revoked,
        revoked_artifacts=policy.revoked.artifacts,
        signed_by=tuple(signed_by),
        counting=None if counting is None else tuple(counting),
        threshold=threshold,
        findings=tuple(findings),
        bundle=bundle,
        checked=checked,
    )
