"""Whether the keys that a policy revokes are keys that it knows."""

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
    """A finding for each revoked digest that is not the id of a key of the policy.

    If authorities or identity providers certify keys, which are not known before they sign, there
    is a finding only for a digest of another form of a known key.
    """
    policy = file.policy
    ids_of_signers = {signer.id for signer in policy.signers()}
    digests = [key for key in policy.revoked.keys if key not in ids_of_signers]
    if not digests:
        return ()
    ids, others = _key_digests(policy)
    certified = bool(policy.authorities or policy.identities)
    found = []
    for digest in digests:
        if digest in ids or (certified and digest not in others):
            continue
        what = f"{digest} is listed as revoked, but is not the id of a key that the policy knows"
        if digest in others:
            what += f"; it is a digest of another form of {others[digest]!r}, which stays valid"
        found.append(Finding(code="AOTC-G044", what=what, where=f"{file.path}: revoked.keys"))
    return tuple(found)


def _key_digests(policy: TrustPolicy) -> tuple[set[str], dict[str, str]]:
    """The ids of all keys, and the names of keys by digests of their other forms."""
    public = [(key.id, key.pem) for key in policy.keys]
    others: dict[str, str] = {}
    for authority in policy.authorities:
        public.append((authority.id, _public_of(authority.pem)))
        others.update((digest, authority.id) for digest in _digests(authority.pem))
    for name, pem in public:
        others.update((digest, name) for digest in _digests(pem))
    return {key_id(pem) for _, pem in public}, others


def _digests(pem: str) -> Iterator[str]:
    """Digests that tools compute: of the file with different line ends, and of the DER."""
    der = base64.b64decode("".join(pem.strip().splitlines()[1:-1]))
    forms: Iterable[bytes] = (
        pem.encode(), pem.strip().encode(), pem.replace("\n", "\r\n").encode(), der,
    )  # fmt: skip
    for data in forms:
        yield hashlib.sha256(data).hexdigest()


def _public_of(certificate: str) -> str:
    from cryptography import x509

    return public_pem(x509.load_pem_x509_certificate(certificate.encode("ascii")).public_key())
