"""Who a signer is to those who verify: a key, or an identity that sigstore's services confirm."""

from __future__ import annotations

from aotc.contract.finding import Finding
from aotc.contract.trust.anchors import Anchor, TrustedKey
from aotc.contract.trust.signer import Sealer, SignedBy, Signer
from aotc.signing import dsse
from aotc.signing.bundle_verification import claimed_signer


def own_key(signer: Signer | Sealer, origin: str = "signer") -> TrustedKey | None:
    """The public key of a signer; None for a keyless signer."""
    if isinstance(signer, Sealer):
        return None
    return TrustedKey(pem=signer.public_pem, origin=origin, development=signer.development)


def own_anchors(signer: Signer | Sealer, origin: str) -> tuple[Anchor, ...]:
    """What must be trusted for the signatures of a signer to count, and nothing else.

    Raises AOTC-I037 if the public services of sigstore cannot be reached for their roots.
    """
    if isinstance(signer, Sealer):
        return signer.anchors()
    key = own_key(signer, origin)
    return () if key is None else (key,)


def signed_by(bundle: bytes, signer: Signer | Sealer) -> SignedBy:
    """Who made a bundle that `signer` has just signed."""
    parsed, identity = dsse.parse(bundle), ""
    if isinstance(signer, Sealer):
        from aotc.signing.keys.certificates import leaf_name

        identity = f"{leaf_name(parsed.certificates)} by {signer.issuer()}"
    return SignedBy(
        key_id=claimed_signer(parsed),
        identity=identity,
        development_key=not isinstance(signer, Sealer) and signer.development,
    )


def findings_of(signer: Signer | Sealer) -> tuple[Finding, ...]:
    """What the user should know about how the signer's key is kept."""
    return () if isinstance(signer, Sealer) else signer.findings
