"""Keys that everybody can derive, and bundles signed with them."""

from __future__ import annotations

import base64
import hashlib
import json

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from aotc.spec.trust_anchors import key_id
from aotc.trust import dsse, oms
from aotc.trust.key_loading import PrivateKey
from aotc.trust.p256 import public_pem
from vectors.values import Json, b64, compact, sha256

# The order of P-256 (SEC 2, secp256r1).
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def _key(text: str) -> PrivateKey:
    """A key that everybody can derive: its scalar is the sha256 of a text."""
    number = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big") % (ORDER - 1) + 1
    secret = ec.derive_private_key(number, ec.SECP256R1())
    pem = public_pem(secret.public_key())
    return PrivateKey(pem, key_id(pem), False, secret)


TRUSTED = _key("aotc test vectors: first trusted key, public to all")
SECOND = _key("aotc test vectors: second trusted key, public to all")
UNKNOWN = _key("aotc test vectors: a key that nobody trusts, public to all")

MODEL = b"These bytes stand for a model; they are hashed and never run.\n"


def bundle_of(
    payload: bytes, key: PrivateKey = TRUSTED, *, hint: str | None = None, signature: bytes = b""
) -> dict[str, Json]:
    """A bundle as JSON-like data; `hint` and `signature` replace the key's own."""
    signed = signature or key.sign(dsse.pae(dsse.IN_TOTO, payload))
    named = key.key_id if hint is None else hint
    return {
        "mediaType": dsse.BUNDLE_MEDIA_TYPE,
        "verificationMaterial": {
            "publicKey": {"hint": named} if named else {},
            "tlogEntries": [],
        },
        "dsseEnvelope": {
            "payload": b64(payload),
            "payloadType": dsse.IN_TOTO,
            "signatures": [{"sig": b64(signed), "keyid": ""}],
        },
    }


def oms_statement() -> dict[str, Json]:
    """The statement in `OMS`: a signature over two files."""
    digests = {"aotc.json": sha256(b"a"), "model/model.onnx": sha256(MODEL)}
    bundle = json.loads(oms.sign(digests, TRUSTED))
    statement: dict[str, Json] = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    return statement


def statement_of(predicate_type: str, predicate: Json) -> dict[str, Json]:
    """An in-toto statement about an aotc.json."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "aotc.json", "digest": {"sha256": sha256(b"a")}}],
        "predicateType": predicate_type,
        "predicate": predicate,
    }


OMS = compact(oms_statement())
GOOD = bundle_of(OMS)
SIGNATURE = base64.b64decode(GOOD["dsseEnvelope"]["signatures"][0]["sig"])
R, S = decode_dss_signature(SIGNATURE)


def first_signature(bundle: Json) -> Json:
    """The only signature of a bundle."""
    return bundle["dsseEnvelope"]["signatures"][0]
