"""Sigstore bundles: accepted ones are signed by the trusted key, or by a certified one."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from fuzz_target import Target
from made_keys import AUTHORITY, LEAF, LOWER_LEAF, MIDDLE, NOW, TRUSTED, pem_of, signer
from repository import ROOT
from structured import mutated

from aotc.base.errors import AotcError
from aotc.trust import dsse, oms, statements
from aotc.trust.bundles import claimed_signer, verify_bundle
from aotc.trust.key_loading import PrivateKey, load_public

VECTORS = ROOT / "manifests" / "vectors"
ANCHORS = (TRUSTED.trusted(), *load_public(VECTORS / "trusted.pub"), AUTHORITY)
PEMS = {anchor.pem for anchor in ANCHORS}
CERTIFIED = {LEAF: "leaf", LOWER_LEAF: "lower leaf"}
REFUSED = {"AOTC-G002", "AOTC-G003", "AOTC-G037", "AOTC-G038"}
WORDS = frozenset(
    [
        "mediaType",
        "verificationMaterial",
        "dsseEnvelope",
        "payload",
        "payloadType",
        "signatures",
        "keyid",
        "sig",
        "hint",
        "publicKey",
        "certificate",
        "x509CertificateChain",
        "certificates",
        "rawBytes",
        "tlogEntries",
        "timestampVerificationData",
    ]
)


def check(data: bytes) -> bool:
    """What is accepted has, according to another reader, a valid signature by one of the keys."""
    try:
        parsed = dsse.parse(data)
    except AotcError as error:
        assert {refusal.code for refusal in (error, *error.also)} == {"AOTC-G004"}
        return False
    try:
        claimed_signer(parsed)
        verified = verify_bundle(parsed, ANCHORS, at=NOW)
    except AotcError as error:
        assert error.code in REFUSED, error.code
        return False
    document = json.loads(data)
    envelope = document["dsseEnvelope"]
    payload = base64.b64decode(envelope["payload"], validate=True)
    (signature,) = envelope["signatures"]
    assert verified.payload == payload
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    kind = envelope["payloadType"].encode()
    signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    public = _public(document["verificationMaterial"], verified.key.pem)
    public.verify(base64.b64decode(signature["sig"]), signed, ec.ECDSA(SHA256()))
    # Base64 has one spelling, so that no bit of a bundle is free.
    assert base64.b64encode(payload).decode() == envelope["payload"]
    return True


def _public(material: dict[str, dict[str, str]], pem: str) -> ec.EllipticCurvePublicKey:
    """The key that must have signed: a trusted one, or that of a certificate made here."""
    claimed = material.get("certificate")
    listed = material.get("x509CertificateChain")
    if listed is not None:
        claimed = listed["certificates"][0]  # type: ignore[assignment]
    if claimed is None:
        assert pem in PEMS
        public = load_pem_public_key(pem.encode())
    else:
        der = base64.b64decode(claimed["rawBytes"])
        assert der in CERTIFIED
        public = x509.load_der_x509_certificate(der).public_key()
        assert load_pem_public_key(pem.encode()) == public
    assert isinstance(public, ec.EllipticCurvePublicKey)
    return public


def seeds() -> Iterator[bytes]:
    """The published vectors, and bundles by a key, by certificates, and by a stranger."""
    for path in sorted(VECTORS.glob("*/*.sigstore.json")):
        yield path.read_bytes()
    leaf = signer("leaf")
    lower = signer("lower leaf")
    for key in (
        TRUSTED,
        signer("a stranger"),
        PrivateKey(leaf.public_pem, leaf.key_id, False, leaf._secret, (pem_of(LEAF),)),
        PrivateKey(
            lower.public_pem,
            lower.key_id,
            False,
            lower._secret,
            (pem_of(LOWER_LEAF), pem_of(MIDDLE)),
        ),
    ):
        yield oms.sign({"aotc.json": "0" * 64}, key)
        yield statements.sign("urn:x", {"a": 1}, {"aotc.json": "0" * 64}, key)


TARGET = Target("bundle", check, seeds, WORDS, 8192, mutated)
