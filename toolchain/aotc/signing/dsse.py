"""DSSE envelopes inside sigstore bundles v0.3: written, parsed strictly, verified.

Sources: DSSE protocol v1.0.2 (pre-authentication encoding), sigstore bundle specification v0.3
(a bundle's envelope has exactly one signature).  Nothing of an envelope is believed before
`verify` has returned.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass

from aotc.contract.canonical import canonical_json
from aotc.contract.parsing import Json, ParseError, Problem, strict_json
from aotc.contract.trust import TrustedKey
from aotc.errors import AotcError
from aotc.signing.keys import PrivateKey, key_id

IN_TOTO = "application/vnd.in-toto+json"
BUNDLE_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
MAX_BUNDLE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Bundle:
    """A parsed bundle: not verified.  `hint` claims a key; it may be empty."""

    payload: bytes
    signature: bytes
    hint: str


@dataclass(frozen=True, slots=True)
class VerifiedBundle:
    """A payload that `key` vouched for."""

    payload: bytes
    key: TrustedKey


def pae(payload_type: str, payload: bytes) -> bytes:
    """What is signed: type and payload, each with its length in bytes (DSSE protocol)."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign(statement: Json, key: PrivateKey) -> bytes:
    """A sigstore bundle over an in-toto statement; equal arguments give equal bytes."""
    payload = canonical_json(statement)
    return canonical_json(
        {
            "mediaType": BUNDLE_MEDIA_TYPE,
            "verificationMaterial": {"publicKey": {"hint": key.key_id}, "tlogEntries": []},
            "dsseEnvelope": {
                "payload": _base64(payload),
                "payloadType": IN_TOTO,
                "signatures": [{"keyid": "", "sig": _base64(key.sign(pae(IN_TOTO, payload)))}],
            },
        }
    )


def parse(bundle: bytes) -> Bundle:
    """Read a bundle of the public-key kind; raises G004 with everything that is wrong in it."""
    try:
        return _parse(strict_json(bundle, limit=MAX_BUNDLE_BYTES))
    except ParseError as error:
        raise malformed(error) from None


def verify(bundle: Bundle, keys: Iterable[TrustedKey]) -> VerifiedBundle:
    """The payload, with the trusted key that signed it.

    Raises G003 where the key that the bundle names is trusted and its signature is wrong, or
    another trusted key than the named one made it; G002 where no trusted key made it.
    """
    trusted = {key_id(key.pem): key for key in keys}
    named = trusted.get(bundle.hint)
    if named is not None:
        if not _signed_by(bundle, named):
            raise AotcError(
                "AOTC-G003",
                "the signature does not match the signed bytes",
                expected=f"a signature by key {bundle.hint}",
            )
        return VerifiedBundle(bundle.payload, named)
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
        expected=", ".join(trusted) or "a key given with --key or --trust",
        found=bundle.hint or "a signature that names no key",
    )


def malformed(error: ParseError) -> AotcError:
    """A G004 refusal for each problem of a bundle or statement, the first leading."""
    first, *rest = (
        AotcError("AOTC-G004", "the signature bundle is malformed", found=str(problem))
        for problem in error.problems
    )
    first.also = tuple(rest)
    return first


def _signed_by(bundle: Bundle, key: TrustedKey) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        public = load_pem_public_key(key.pem.encode("ascii"))
    except ValueError:
        public = None
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise AotcError("AOTC-G013", "a trusted key is unusable", where=key.origin)
    try:
        public.verify(bundle.signature, pae(IN_TOTO, bundle.payload), ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def _parse(data: Json) -> Bundle:
    top = _fields(data, "", ("mediaType", "verificationMaterial", "dsseEnvelope"))
    if top["mediaType"] != BUNDLE_MEDIA_TYPE:
        raise ParseError([Problem("mediaType", f"expected {BUNDLE_MEDIA_TYPE}")])
    material = _fields(
        top["verificationMaterial"],
        "verificationMaterial",
        ("publicKey",),
        optional=("tlogEntries", "timestampVerificationData"),
    )
    public = _fields(
        material["publicKey"], "verificationMaterial.publicKey", (), optional=("hint",)
    )
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
    hint = public.get("hint") or ""
    if not isinstance(hint, str):
        raise ParseError([Problem("verificationMaterial.publicKey.hint", "expected a string")])
    if signature.get("keyid") not in (None, "", hint):
        raise ParseError([Problem(f"{where}.keyid", "is not the key of the hint")])
    return Bundle(
        payload=_decode_base64(envelope["payload"], "dsseEnvelope.payload"),
        signature=_decode_base64(signature["sig"], f"{where}.sig"),
        hint=hint,
    )


def _fields(
    data: Json, path: str, required: tuple[str, ...], *, optional: tuple[str, ...] = ()
) -> dict[str, Json]:
    if not isinstance(data, dict):
        raise ParseError([Problem(path, "expected a mapping")])
    dot = f"{path}." if path else ""
    problems = [Problem(f"{dot}{name}", "missing") for name in required if name not in data]
    known = (*required, *optional)
    problems += [Problem(f"{dot}{name}", "unknown field") for name in data if name not in known]
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
