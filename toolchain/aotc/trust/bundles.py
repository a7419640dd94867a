"""Verification of sigstore bundles: by a trusted key, a certificate, or a keyless identity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from aotc.base.errors import AotcError
from aotc.base.records import record
from aotc.spec.codec import ParseError, Problem
from aotc.spec.trust_anchors import Anchor, TrustedAuthority, TrustedIdentity, TrustedKey, key_id
from aotc.trust import dsse
from aotc.trust.dsse import Bundle
from aotc.trust.p256 import is_signed, verifying_key


@record(kw_only=False)
class VerifiedBundle:
    """The payload of a bundle, and the trusted key whose signature was verified."""

    payload: bytes
    key: TrustedKey


def verify_bundle(
    bundle: Bundle,
    anchors: Iterable[Anchor],
    *,
    at: datetime | None = None,
) -> VerifiedBundle:
    """Verify the signature of a bundle; returns its payload and the key that signed it.

    The key must be a trusted key, or have a certificate of a trusted authority or for a trusted
    identity.  A certificate must be valid at the time `at`, by default now; for a key that is
    trusted itself, its certificate is ignored.  What the bundle claims about its signer only
    selects among the anchors.

    Raises AOTC-G003 if the bundle names a trusted key whose signature is wrong, or another trusted
    key signed it; G002 if no trusted key signed it; G037 or G038 if its certificate is invalid or
    not from a trusted authority; G013 if a trusted key is unusable; and what `verify_identity`
    does.
    """
    listed = tuple(anchors)
    trusted = {key_id(key.pem): key for key in listed if isinstance(key, TrustedKey)}
    if bundle.certificates:
        identities = tuple(item for item in listed if isinstance(item, TrustedIdentity))
        if bundle.has_log_entries and identities:
            return _verify_keyless(bundle, identities)
        authorities = tuple(item for item in listed if isinstance(item, TrustedAuthority))
        key = _certified_key(bundle, trusted, authorities, at)
        return VerifiedBundle(bundle.payload, _require_signed_by(bundle, key))
    named = trusted.get(bundle.hint)
    if named is not None:
        return VerifiedBundle(bundle.payload, _require_signed_by(bundle, named))
    for identity, key in trusted.items():
        if _signed_by(bundle, key):
            if bundle.hint:
                raise AotcError(
                    "AOTC-G003",
                    "the bundle names another key than the one that signed it",
                    expected=identity,
                    found=bundle.hint,
                )
            return VerifiedBundle(bundle.payload, key)
    raise AotcError(
        "AOTC-G002",
        "the signature is not by a trusted key" if trusted else "no key is trusted",
        expected=", ".join(trusted) or "a trusted key",
        found=bundle.hint or "a signature that does not name its key",
    )


def claimed_signer(bundle: Bundle) -> str:
    """The id of the key that a bundle claims, UNVERIFIED; empty if it names none.

    Raises AOTC-G037 if its certificate cannot be read.
    """
    if not bundle.certificates:
        return bundle.hint
    from aotc.trust.certificates import leaf_key

    return key_id(leaf_key(bundle.certificates))


def _certified_key(
    bundle: Bundle,
    trusted: Mapping[str, TrustedKey],
    authorities: tuple[TrustedAuthority, ...],
    at: datetime | None,
) -> TrustedKey:
    from aotc.trust import certificates

    trusted_key = trusted.get(claimed_signer(bundle))
    if trusted_key is not None:
        return trusted_key
    if not authorities:
        raise AotcError(
            "AOTC-G002",
            "the signature has a certificate, and no certificate authority is trusted",
            expected=", ".join(trusted) or "a trusted key",
            found=certificates.claimed_name(bundle.certificates),
        )
    return certificates.verify_chain(bundle.certificates, authorities, at)


def _verify_keyless(bundle: Bundle, identities: tuple[TrustedIdentity, ...]) -> VerifiedBundle:
    from aotc.trust.keyless_verification import verify_identity

    key, payload = verify_identity(bundle.source, bundle.certificates[0], identities)
    # Two parsers read the bundle; the payload that was verified must be the one that is used.
    if payload != bundle.payload:
        raise dsse.malformed(ParseError([Problem("dsseEnvelope.payload", "is ambiguous")]))
    return VerifiedBundle(payload, key)


def _require_signed_by(bundle: Bundle, key: TrustedKey) -> TrustedKey:
    """Return `key` if it signed the bundle; else raise AOTC-G003."""
    if not _signed_by(bundle, key):
        raise AotcError(
            "AOTC-G003",
            "the signature does not match the signed bytes",
            expected=f"a signature by key {key_id(key.pem)}",
        )
    return key


def _signed_by(bundle: Bundle, key: TrustedKey) -> bool:
    # The trusted key fixes the algorithm, whatever a bundle says.
    public = verifying_key(key.pem)
    if public is None:
        raise AotcError(
            "AOTC-G013",
            "a trusted key is unusable",
            where=key.origin,
            expected="a PEM public key on P-256 or P-384",
        )
    return is_signed(public, bundle.signature, dsse.pae(dsse.IN_TOTO, bundle.payload))
