"""Signing policies with root keys; each key adds a bundle next to the policy."""

from __future__ import annotations

from pathlib import Path

from aotc.authoring.policy_files import write_file
from aotc.authoring.policy_report import policy_report
from aotc.contract.finding import Finding
from aotc.contract.results.trust_reports import TrustReport
from aotc.contract.trust.signer import Signer
from aotc.contract.trust.trust_policy import POLICY_PREDICATE
from aotc.errors import AotcError
from aotc.signing import statements
from aotc.signing.keys.signer_loading import load_signer
from aotc.verification.policy.policy_document import PolicyFile, read_policy
from aotc.verification.policy.roots import (
    POLICY_NAME,
    bundle_path,
    host_roots,
    require_named_policy,
    root_signers,
)


def sign_policy_file(policy: Path, key: str | Path | Signer) -> TrustReport:
    """Sign the policy of a file, and write the bundle next to it.

    The report has findings if this host would not count the key, or would not take the policy.
    Raises AOTC-I001 and G019 for the policy and the host's root keys, what `load_signer` does, I018
    and I026 if the bundle cannot be written, and G041 if another process holds the lock.
    """
    roots = host_roots()
    file = read_policy(policy)
    signer = load_signer(key)
    place = bundle_path(policy, signer.key_id)
    write_file(place, sign_policy(file, signer), new=False)
    if roots is None:
        return policy_report(file, signed_by=(signer.key_id,), bundle=str(place))
    counting = root_signers(file, roots.record)
    findings = []
    if signer.key_id not in counting:
        what = f"the key is not a root key of this host ({roots.path}), so it does not count here"
        findings.append(Finding(code="AOTC-G021", what=what, where=str(place)))
    try:
        findings += require_named_policy(file, roots)
    except AotcError as error:
        names = f"{roots.path} names {roots.record.policy}"
        what = f"this host does not take the policy: {error.what}; {names}"
        findings.append(Finding(code=error.code, what=what, where=str(policy)))
    return policy_report(
        file,
        signed_by=(signer.key_id,),
        bundle=str(place),
        counting=counting,
        threshold=roots.record.threshold,
        findings=tuple(findings),
    )


def sign_policy(file: PolicyFile, key: Signer) -> bytes:
    """The bundle with which a root key signs a policy; equal arguments give equal bytes."""
    return statements.sign(
        POLICY_PREDICATE,
        {"name": file.policy.name, "sequence": file.policy.sequence},
        {POLICY_NAME: file.sha256},
        key,
    )
