"""DSSE envelopes inside sigstore bundles v0.3: written, parsed strictly, verified.

Sources: DSSE protocol v1.0.2 (pre-authentication encoding), sigstore bundle specification v0.3
(a bundle's envelope has exactly one signature).  Nothing of an envelope is believed before
`verify` has returned.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice

from aotc.contract.codec.canonical import canonical_json
from aotc.contract.codec.parsing import Json, ParseError, Problem, strict_json
from aotc.contract.trust.anchors import (
    Anchor,
    TrustedAuthority,
    TrustedIdentity,
    TrustedKey,
    pem_bytes,
)
from aotc.contract.trust.signer import Sealer, Signer
from aotc.errors import AotcError
from aotc.signing.keys.key_loading import key_id

IN_TOTO = "application/vnd.in-toto+json"
BUNDLE_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
MAX_BUNDLE_BYTES = 32 << 20
# What was signed is one of them, however long; a keyless bundle with all its proofs has hundreds.
MAX_BUNDLE_VALUES = 10_000
MAX_CERTIFICATES = 8
# Of an object that nobody vouches for, no more problems are told.
_MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Bundle:
    """A parsed bundle: not verified.

    `hint` claims a key, and may be empty; or `certificates` (DER, the signer's first) do.
    `logged`: it holds entries of a transparency log; `source` is the whole bundle.
    """

    payload: bytes
    signature: bytes
    hint: str
    certificates: tuple[bytes, ...] = ()
    logged: bool = False
    source: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class VerifiedBundle:
    """A payload that `key` vouched for."""

    payload: bytes
    key: TrustedKey


def pae(payload_type: str, payload: bytes) -> bytes:
    """What is signed: type and payload, each with its length in bytes (DSSE protocol)."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign(statement: Json, signer: Signer | Sealer) -> bytes:
    """A sigstore bundle over an in-toto statement; equal arguments give equal bytes.

    That is so for a key in a file; a signer command may sign with random nonces.
    """
    payload = canonical_json(statement)
    if isinstance(signer, Sealer):
        return signer.seal(payload)
    return canonical_json(
        {
            "mediaType": BUNDLE_MEDIA_TYPE,
            "verificationMaterial": {**_claim(signer), "tlogEntries": []},
            "dsseEnvelope": {
                "payload": _base64(payload),
                "payloadType": IN_TOTO,
                "signatures": [{"keyid": "", "sig": _base64(signer.sign(pae(IN_TOTO, payload)))}],
            },
        }
    )


def parse(bundle: bytes) -> Bundle:
    """Read a bundle that names a key or holds certificates.

    Raises G004 with everything that is wrong in it.
    """
    try:
        parsed = _parse(strict_json(bundle, limit=MAX_BUNDLE_BYTES, values=MAX_BUNDLE_VALUES))
        return replace(parsed, source=bundle)
    except ParseError as error:
        raise malformed(error) from None


def verify(
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


def malformed(error: ParseError) -> AotcError:
    """A G004 refusal for each problem of a bundle or statement, the first leading."""
    first, *rest = (
        AotcError("AOTC-G004", "the signature bundle is malformed", found=str(problem))
        for problem in error.problems
    )
    first.also = tuple(rest)
    return first


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
    from aotc.signing.keyless.identities import verify_identity

    key, payload = verify_identity(bundle.source, bundle.certificates[0], identities)
    # Two parsers read the bundle; what was verified must be what is used.
    if payload != bundle.payload:
        raise malformed(ParseError([Problem("dsseEnvelope.payload", "is ambiguous")]))
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
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        public = load_pem_public_key(key.pem.encode("ascii"))
    except (ValueError, UnsupportedAlgorithm):
        public = None
    # The algorithm is the project's, whatever a bundle says; no other curve is interoperable.
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(
        public.curve, ec.SECP256R1
    ):
        raise AotcError(
            "AOTC-G013",
            "a trusted key is unusable",
            where=key.origin,
            expected="a PEM public key on P-256",
        )
    try:
        public.verify(bundle.signature, pae(IN_TOTO, bundle.payload), ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def _claim(signer: Signer) -> dict[str, Json]:
    """Who signs: the id of a bare key, or its certificates, its own first."""
    if not signer.chain:
        return {"publicKey": {"hint": signer.key_id}}
    listed = [{"rawBytes": _base64(pem_bytes(block))} for block in signer.chain]
    return {"x509CertificateChain": {"certificates": listed}}


def _parse(data: Json) -> Bundle:
    top = _fields(data, "", ("mediaType", "verificationMaterial", "dsseEnvelope"))
    if top["mediaType"] != BUNDLE_MEDIA_TYPE:
        raise ParseError([Problem("mediaType", f"expected {BUNDLE_MEDIA_TYPE}")])
    hint, certificates, logged = _parse_material(top["verificationMaterial"])
    envelope = _fields(
        top["dsseEnvelope"], "dsseEnvelope", ("payload", "payloadType", "signatures")
    )
    if envelope["payloadType"] != IN_TOTO:
        raise ParseError([Problem("dsseEnvelope.payloadType", f"expected {IN_TOTO}")])
    signatures = envelope["signatures"]
    if not isinstance(signatures, list) or len(signatures) != 1:
        raise ParseError([Problem("dsseEnvelope.signatures", "expected exactly one")])
    where = "dsseEnvelope.signatures[0]"
    signature = _fields(signatures[0], where, ("sig",), optional=("keyid",))
    if signature.get("keyid") not in (None, "", hint):
        raise ParseError([Problem(f"{where}.keyid", "is not the key of the hint")])
    return Bundle(
        payload=_decode_base64(envelope["payload"], "dsseEnvelope.payload"),
        signature=_decode_base64(signature["sig"], f"{where}.sig"),
        hint=hint,
        certificates=certificates,
        logged=logged,
    )


# Who signed: exactly one of these (VerificationMaterial of the bundle specification).
_CLAIMS = ("publicKey", "certificate", "x509CertificateChain")


def _parse_material(data: Json) -> tuple[str, tuple[bytes, ...], bool]:
    """The hint, the certificates, and whether a transparency log has entries."""
    path = "verificationMaterial"
    optional = (*_CLAIMS, "tlogEntries", "timestampVerificationData")
    material = _fields(data, path, (), optional=optional)
    claims = [name for name in _CLAIMS if name in material]
    if len(claims) != 1:
        raise ParseError([Problem(path, f"expected one of {', '.join(_CLAIMS)}, found {claims}")])
    claim, where = material[claims[0]], f"{path}.{claims[0]}"
    logged = bool(material.get("tlogEntries"))
    if claims[0] == "publicKey":
        hint = _fields(claim, where, (), optional=("hint",)).get("hint") or ""
        if not isinstance(hint, str):
            raise ParseError([Problem(f"{where}.hint", "expected a string")])
        return hint, (), logged
    if claims[0] == "certificate":
        return "", (_certificate(claim, where),), logged
    listed = _fields(claim, where, ("certificates",))["certificates"]
    where += ".certificates"
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_CERTIFICATES:
        raise ParseError([Problem(where, f"expected 1 to {MAX_CERTIFICATES} certificates")])
    found = tuple(_certificate(each, f"{where}[{i}]") for i, each in enumerate(listed))
    return "", found, logged


def _certificate(data: Json, path: str) -> bytes:
    return _decode_base64(_fields(data, path, ("rawBytes",))["rawBytes"], f"{path}.rawBytes")


def _fields(
    data: Json, path: str, required: tuple[str, ...], *, optional: tuple[str, ...] = ()
) -> dict[str, Json]:
    if not isinstance(data, dict):
        raise ParseError([Problem(path, "expected a mapping")])
    dot = f"{path}." if path else ""
    problems = [Problem(f"{dot}{name}", "missing") for name in required if name not in data]
    known = (*required, *optional)
    unknown = (name for name in data if name not in known)
    problems += [
        Problem(f"{dot}{name[:80]}", "unknown field") for name in islice(unknown, _MOST_PROBLEMS)
    ]
    if problems:
        raise ParseError(problems)
    return data


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decode_base64(text: Json, path: str) -> bytes:
    """Standard base64 in its one canonical spelling, so that no bit of a bundle is free."""
    if not isinstance(text, str):
        raise ParseError([Problem(path, "expected a string")])
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ParseError([Problem(path, "is not base64")]) from None
    if _base64(data) != text:
        raise ParseError([Problem(path, "is not canonical base64")])
    return data
