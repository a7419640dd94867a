"""Who signed a sigstore bundle: a trusted key, one with a certificate, or a keyless identity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from aotc.contract.codec.parsing import ParseError, Problem
from aotc.contract.trust.anchors import (
    Anchor,
    TrustedAuthority,
    TrustedIdentity,
    TrustedKey,
    key_id,
)
from aotc.errors import AotcError
from aotc.records import record
from aotc.signing import dsse
from aotc.signing.dsse import Bundle
from aotc.signing.keys.p256 import is_signed, p256_key


@record(kw_only=False)
class VerifiedBundle:
    """A payload that `key` vouched for."""

    payload: bytes
    key: TrustedKey


def verify_bundle(
    bundle: Bundle,
    anchors: Iterable[Anchor],
    *,
    at: datetime | None = None,
) -> VerifiedBundle:
    """The payload, with the trusted key that signed it, or the key that was certified for it.

    A certificate must be valid at the moment `at`, now by default; of a key that is trusted by
    itself it is not looked at.  What the bundle claims merely selects among the anchors.

    Raises G003 where the key that the bundle names is trusted and its signature is wrong, or
    another trusted key than the named one made it; G002 where no trusted key made it; G037 and
    G038 where no authority vouches for its certificate.
    """
    listed = tuple(anchors)
    trusted = {key_id(each.pem): each for each in listed if isinstance(each, TrustedKey)}
    if bundle.certificates:
        identities = tuple(each for each in listed if isinstance(each, TrustedIdentity))
        if bundle.logged and identities:
            return _keyless(bundle, identities)
        authorities = tuple(each for each in listed if isinstance(each, TrustedAuthority))
        key = _certified(bundle, trusted, authorities, at)
        return VerifiedBundle(bundle.payload, _only_by(bundle, key))
    named = trusted.get(bundle.hint)
    if named is not None:
        return VerifiedBundle(bundle.payload, _only_by(bundle, named))
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
        "the signature is by no trusted key" if trusted else "no key is trusted",
        expected=", ".join(trusted) or "a trusted key",
        found=bundle.hint or "a signature that names no key",
    )


def claimed_signer(bundle: Bundle) -> str:
    """The id of the key that a bundle claims, UNVERIFIED; empty where it names none, or G037."""
    if not bundle.certificates:
        return bundle.hint
    from aotc.signing.keys.certificates import leaf_key

    return key_id(leaf_key(bundle.certificates))


def _certified(
    bundle: Bundle,
    trusted: Mapping[str, TrustedKey],
    authorities: tuple[TrustedAuthority, ...],
    at: datetime | None,
) -> TrustedKey:
    from aotc.signing.keys import certificates

    pinned = trusted.get(key_id(certificates.leaf_key(bundle.certificates)))
    if pinned is not None:
        return pinned
    if not authorities:
        raise AotcError(
            "AOTC-G002",
            "the signature is by a certificate, and no certificate authority is trusted",
            expected=", ".join(trusted) or "a trusted key",
            found=certificates.claimed_name(bundle.certificates),
        )
    return certificates.verify_chain(bundle.certificates, authorities, at)


def _keyless(bundle: Bundle, identities: tuple[TrustedIdentity, ...]) -> VerifiedBundle:
    from aotc.signing.keyless_verification import verify_identity

    key, payload = verify_identity(bundle.source, bundle.certificates[0], identities)
    # Two parsers read the bundle; what was verified must be what is used.
    if payload != bundle.payload:
        raise dsse.malformed(ParseError([Problem("dsseEnvelope.payload", "is ambiguous")]))
    return VerifiedBundle(payload, key)


def _only_by(bundle: Bundle, key: TrustedKey) -> TrustedKey:
    """`key`, where it signed the bundle; else raises G003."""
    if not _signed_by(bundle, key):
        raise AotcError(
            "AOTC-G003",
            "the signature does not match the signed bytes",
            expected=f"a signature by key {key_id(key.pem)}",
        )
    return key


def _signed_by(bundle: Bundle, key: TrustedKey) -> bool:
    # The algorithm is the project's, whatever a bundle says; no other curve is interoperable.
    public = p256_key(key.pem)
    if public is None:
        raise AotcError(
            "AOTC-G013",
            "a trusted key is unusable",
            where=key.origin,
            expected="a PEM public key on P-256",
        )
    return is_signed(public, bundle.signature, dsse.pae(dsse.IN_TOTO, bundle.payload))
