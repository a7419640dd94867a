"""Policies signed by root keys: a bundle beside the policy for each of them."""

from __future__ import annotations

from pathlib import Path

from aotc.authoring.policy_answers import policy_answer
from aotc.authoring.policy_files import write
from aotc.contract.finding import Finding
from aotc.contract.results.trust_reports import TrustReport
from aotc.contract.trust.signer import Signer
from aotc.contract.trust.trust_policy import POLICY_PREDICATE
from aotc.errors import AotcError
from aotc.signing import statements as attest
from aotc.signing.keys.signer_loading import load_signer
from aotc.verification.policy.policy_document import PolicyFile, read_policy
from aotc.verification.policy.roots import (
    POLICY_NAME,
    bundle_path,
    host_roots,
    require_name,
    signers_so_far,
)


def sign_policy_file(policy: Path, key: str | Path | Signer) -> TrustReport:
    """Sign the policy of a file as it is: a bundle beside it, and what this host says of that.

    Findings tell where this host would not count the key, or not take the policy.
    Raises I001 and G019 for the policy and the host's roots, what `load_signer` does, I018, I026
    and G041.
    """
    roots = host_roots()
    file = read_policy(policy)
    signer = load_signer(key)
    place = bundle_path(policy, signer.key_id)
    write(place, sign_policy(file, signer), new=False)
    if roots is None:
        return policy_answer(file, signed_by=(signer.key_id,), bundle=str(place))
    counting = signers_so_far(file, roots.record)
    findings = []
    if signer.key_id not in counting:
        what = f"the key is no root key of this host ({roots.path}), so it does not count here"
        findings.append(Finding(code="AOTC-G021", what=what, where=str(place)))
    try:
        findings += require_name(file, roots)
    except AotcError as error:
        what = f"this host does not take it: {error.what}; {roots.path} names {roots.record.policy}"
        findings.append(Finding(code=error.code, what=what, where=str(policy)))
    return policy_answer(
        file,
        signed_by=(signer.key_id,),
        bundle=str(place),
        counting=counting,
        threshold=roots.record.threshold,
        findings=tuple(findings),
    )


def sign_policy(file: PolicyFile, key: Signer) -> bytes:
    """The bundle by which a root key vouches for a policy; equal arguments give equal bytes."""
    return attest.attest(
        POLICY_PREDICATE,
        {"name": file.policy.name, "sequence": file.policy.sequence},
        {POLICY_NAME: file.sha256},
        key,
    )
