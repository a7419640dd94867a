"""Keys that a policy revokes, as they are written: whether each is a key that the policy knows."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from aotc.contract.finding import Finding
from aotc.contract.trust.anchors import key_id
from aotc.signing.keys.p256 import public_pem

if TYPE_CHECKING:
    from aotc.contract.trust.trust_policy import TrustPolicy
    from aotc.verification.policy.policy_document import PolicyFile


def unmatched_revocations(file: PolicyFile) -> tuple[Finding, ...]:
    """A finding for each revoked sha256 that is the id of no key of the policy, and revokes none.

    Where authorities or identity providers certify keys, which nobody knows before they sign, only
    for what is a known key in other words.
    """
    policy = file.policy
    digests = [each for each in policy.revoked.keys if each not in {h.id for h in policy.signers()}]
    if not digests:
        return ()
    ids, others = _spellings(policy)
    certified = bool(policy.authorities or policy.identities)
    found = []
    for each in digests:
        if each in ids or (certified and each not in others):
            continue
        what = f"{each} is listed as revoked, and is the id of no key that the policy knows"
        if each in others:
            what += f"; it is a digest of another form of {others[each]!r}, which stays valid"
        found.append(Finding(code="AOTC-G044", what=what, where=f"{file.path}: revoked.keys"))
    return tuple(found)


def _spellings(policy: TrustPolicy) -> tuple[set[str], dict[str, str]]:
    """The ids of all keys, and digests of their other forms, each with its name in the policy."""
    public = [(each.id, each.pem) for each in policy.keys]
    others: dict[str, str] = {}
    for authority in policy.authorities:
        public.append((authority.id, _public_of(authority.pem)))
        others.update((each, authority.id) for each in _digests(authority.pem))
    for name, pem in public:
        others.update((each, name) for each in _digests(pem))
    return {key_id(pem) for _, pem in public}, others


def _digests(pem: str) -> Iterator[str]:
    """What tools take the sha256 of: the file as it is or with other line ends, and the DER."""
    der = base64.b64decode("".join(pem.strip().splitlines()[1:-1]))
    forms: Iterable[bytes] = (
        pem.encode(), pem.strip().encode(), pem.replace("\n", "\r\n").encode(), der,
    )  # fmt: skip
    for data in forms:
        yield hashlib.sha256(data).hexdigest()


def _public_of(certificate: str) -> str:
    from cryptography import x509

    return public_pem(x509.load_pem_x509_certificate(certificate.encode("ascii")).public_key())
