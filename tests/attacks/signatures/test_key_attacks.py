"""Keys, algorithms and signatures that must not be trusted: each is refused with its code."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, padding, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from refusals import refusal
from signed_payload import verify_payload

from aotc.base.errors import AotcError
from aotc.spec.trust_anchors import TrustedKey, key_id
from aotc.trust import dsse, key_files, oms, statements
from aotc.trust.key_loading import PrivateKey, load_private, load_public

DIGESTS = {"aotc.json": "2" * 64, "model/model.onnx": "1" * 64}
# SEC 2, section 2.4.2: the order of the group of P-256.
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> PrivateKey:
    return load_private(key_files.generate(tmp_path_factory.mktemp("key") / "a.pem")[0])


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> PrivateKey:
    return load_private(key_files.generate(tmp_path_factory.mktemp("key") / "b.pem")[0])


def refusal_of(bundle: bytes, *trusted: TrustedKey) -> AotcError:
    return refusal(verify_payload, bundle, trusted)


def edited(bundle: bytes, edit: Callable[[dict[str, Any]], object]) -> bytes:
    document = json.loads(bundle)
    edit(document)
    return json.dumps(document).encode()


def with_signature(bundle: bytes, signature: bytes) -> bytes:
    text = base64.b64encode(signature).decode()
    return edited(bundle, lambda b: b["dsseEnvelope"]["signatures"][0].update(sig=text))


def signature_of(bundle: bytes) -> bytes:
    return base64.b64decode(json.loads(bundle)["dsseEnvelope"]["signatures"][0]["sig"])


def message_of(bundle: bytes) -> bytes:
    return dsse.pae(dsse.IN_TOTO, base64.b64decode(json.loads(bundle)["dsseEnvelope"]["payload"]))


OTHER_KEYS: dict[str, Callable[[], Any]] = {
    "P-192": lambda: ec.generate_private_key(ec.SECP192R1()),
    "P-224": lambda: ec.generate_private_key(ec.SECP224R1()),
    "P-521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "secp256k1": lambda: ec.generate_private_key(ec.SECP256K1()),
    "brainpool": lambda: ec.generate_private_key(ec.BrainpoolP256R1()),
    "RSA-1024": lambda: rsa.generate_private_key(65537, 1024),
    "RSA-2048": lambda: rsa.generate_private_key(65537, 2048),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
    "X25519": x25519.X25519PrivateKey.generate,
    "DSA": lambda: dsa.generate_private_key(1024),
}


def sign_with(secret: Any, message: bytes) -> bytes:
    if isinstance(secret, ec.EllipticCurvePrivateKey):
        return secret.sign(message, ec.ECDSA(hashes.SHA256()))
    if isinstance(secret, rsa.RSAPrivateKey):
        return secret.sign(message, padding.PKCS1v15(), hashes.SHA256())
    if isinstance(secret, dsa.DSAPrivateKey):
        return secret.sign(message, hashes.SHA256())
    return bytes(secret.sign(message)) if hasattr(secret, "sign") else b"\x00" * 64


@pytest.mark.parametrize("kind", OTHER_KEYS)
def test_a_key_of_another_kind(kind: str, key: PrivateKey, tmp_path: Path) -> None:
    secret = OTHER_KEYS[kind]()
    pem = (
        secret.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )
    (tmp_path / "key.pub").write_text(pem)
    for code in ("AOTC-G013", "AOTC-I023"):
        with pytest.raises(AotcError) as caught:
            load_public(tmp_path / "key.pub", code=code)
        assert (caught.value.code, caught.value.found) == (code, "another kind of key")
    (tmp_path / "key.pem").write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    with pytest.raises(AotcError) as caught:
        load_private(tmp_path / "key.pem")
    assert caught.value.code == "AOTC-I023"
    # Even if it is in the trust, with a signature that is valid for its kind.
    bundle = edited(
        oms.sign(DIGESTS, key),
        lambda b: b["verificationMaterial"].update(publicKey={"hint": key_id(pem)}),
    )
    bundle = with_signature(bundle, sign_with(secret, message_of(bundle)))
    assert refusal_of(bundle, TrustedKey(pem=pem, origin="x")).code == "AOTC-G013"


def test_a_digest_signed_with_the_public_key_as_a_shared_secret(key: PrivateKey) -> None:
    bundle = oms.sign(DIGESTS, key)
    mac = hmac.digest(key.public_pem.encode(), message_of(bundle), hashlib.sha256)
    assert refusal_of(with_signature(bundle, mac), key.trusted()).code == "AOTC-G003"


@pytest.mark.parametrize(
    "edit",
    [
        lambda b: b["dsseEnvelope"]["signatures"][0].update(alg="none"),
        lambda b: b["dsseEnvelope"].update(alg="HS256"),
        lambda b: b.update(signatureAlgorithm="none"),
        lambda b: b["verificationMaterial"]["publicKey"].update(keyDetails="PKIX_RSA_PKCS1V5"),
        lambda b: b["verificationMaterial"]["publicKey"].update(rawBytes="AAAA"),
        lambda b: b["verificationMaterial"].update(jwk={"kty": "oct", "k": "AAAA"}),
        lambda b: b["verificationMaterial"].update(x509CertificateChain={"certificates": []}),
        lambda b: b["dsseEnvelope"].update(payloadType="text/plain"),
        lambda b: b["dsseEnvelope"]["signatures"].append(b["dsseEnvelope"]["signatures"][0]),
        lambda b: b["dsseEnvelope"]["signatures"].insert(0, {"sig": "AAAA"}),
        lambda b: b["dsseEnvelope"]["signatures"].append({"sig": "AAAA"}),
        lambda b: b["dsseEnvelope"]["signatures"].clear(),
        lambda b: b["dsseEnvelope"]["signatures"][0].pop("sig"),
        lambda b: b["dsseEnvelope"]["signatures"][0].update(sig=None),
        lambda b: b["dsseEnvelope"].pop("signatures"),
        lambda b: b.pop("dsseEnvelope"),
        lambda b: b.pop("verificationMaterial"),
    ],
)
def test_a_bundle_chooses_no_algorithm_and_holds_one_signature(
    edit: Callable[[dict[str, Any]], object], key: PrivateKey
) -> None:
    assert refusal_of(edited(oms.sign(DIGESTS, key), edit), key.trusted()).code == "AOTC-G004"


def test_the_hint_does_not_choose_the_trusted_key(key: PrivateKey, other: PrivateKey) -> None:
    def claims(hint: str) -> Callable[[dict[str, Any]], object]:
        return lambda b: b["verificationMaterial"].update(publicKey={"hint": hint})

    forged = edited(oms.sign(DIGESTS, other), claims(key.key_id))
    # Signed by an unknown key that claims to be a trusted one; by a trusted one as another one.
    assert refusal_of(forged, key.trusted()).code == "AOTC-G003"
    assert refusal_of(forged, key.trusted(), other.trusted()).code == "AOTC-G003"
    hidden = edited(oms.sign(DIGESTS, other), claims(other.key_id.upper()))
    assert refusal_of(hidden, other.trusted()).code == "AOTC-G003"
    unknown = edited(oms.sign(DIGESTS, other), claims("0" * 64))
    assert refusal_of(unknown, key.trusted()).code == "AOTC-G002"
    # The same with the PEM in place of its id, and without any hint.
    pem = edited(oms.sign(DIGESTS, other), claims(other.public_pem))
    assert refusal_of(pem, key.trusted()).code == "AOTC-G002"
    silent = edited(oms.sign(DIGESTS, other), claims(""))
    assert refusal_of(silent, key.trusted()).code == "AOTC-G002"
    assert verify_payload(silent, (key.trusted(), other.trusted())).key == other.trusted()


def _integers(signature: bytes) -> tuple[int, int]:
    r, s = decode_dss_signature(signature)
    return r, s


BAD_SIGNATURES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda good: b"",
    "one byte": lambda good: b"\x30",
    "r and s of zero": lambda good: encode_dss_signature(0, 0),
    "r of zero": lambda good: encode_dss_signature(0, _integers(good)[1]),
    "s of zero": lambda good: encode_dss_signature(_integers(good)[0], 0),
    "r and s of one": lambda good: encode_dss_signature(1, 1),
    "the order": lambda good: encode_dss_signature(ORDER, ORDER),
    "s plus the order": lambda good: encode_dss_signature(
        _integers(good)[0], _integers(good)[1] + ORDER
    ),
    "r plus the order": lambda good: encode_dss_signature(
        _integers(good)[0] + ORDER, _integers(good)[1]
    ),
    "negative": lambda good: _der(
        *((-n).to_bytes(33, "big", signed=True) for n in _integers(good))
    ),
    "swapped": lambda good: encode_dss_signature(_integers(good)[1], _integers(good)[0]),
    "trailing byte": lambda good: good + b"\x00",
    "trailing byte inside": lambda good: bytes([good[0], good[1] + 1]) + good[2:] + b"\x00",
    "twice": lambda good: good + good,
    "truncated": lambda good: good[:-1],
    "half": lambda good: good[: len(good) // 2],
    "long form of the length": lambda good: good[:1] + b"\x81" + good[1:],
    "indefinite length": lambda good: good[:1] + b"\x80" + good[2:] + b"\x00\x00",
    "padded integer": lambda good: _padded(good),
    "raw instead of DER": lambda good: b"".join(n.to_bytes(32, "big") for n in _integers(good)),
    "another's": lambda good: bytes(reversed(good)),
}


def _padded(good: bytes) -> bytes:
    """The same integers, the first with an extra zero byte: BER, but not DER."""
    r, s = (n.to_bytes(33, "big").lstrip(b"\x00") for n in _integers(good))
    return _der(b"\x00\x00" + r, (b"\x00" if s[0] & 0x80 else b"") + s)


def _der(r: bytes, s: bytes) -> bytes:
    body = b"\x02" + bytes([len(r)]) + r + b"\x02" + bytes([len(s)]) + s
    return b"\x30" + bytes([len(body)]) + body


@pytest.mark.parametrize("attack", BAD_SIGNATURES)
def test_what_is_not_a_signature(attack: str, key: PrivateKey) -> None:
    bundle = oms.sign(DIGESTS, key)
    forged = with_signature(bundle, BAD_SIGNATURES[attack](signature_of(bundle)))
    assert refusal_of(forged, key.trusted()).code == "AOTC-G003"
    # Without a hint it has no signer.
    silent = edited(forged, lambda b: b["verificationMaterial"]["publicKey"].pop("hint"))
    assert refusal_of(silent, key.trusted()).code == "AOTC-G002"


def test_every_bit_of_a_signature_counts(key: PrivateKey) -> None:
    bundle = oms.sign(DIGESTS, key)
    good = signature_of(bundle)
    for bit in range(8 * len(good)):
        forged = bytearray(good)
        forged[bit // 8] ^= 1 << bit % 8
        assert refusal_of(with_signature(bundle, bytes(forged)), key.trusted()).code == "AOTC-G003"


def test_both_values_of_s_are_accepted(key: PrivateKey) -> None:
    bundle = oms.sign(DIGESTS, key)
    r, s = _integers(signature_of(bundle))
    twin = with_signature(bundle, encode_dss_signature(r, ORDER - s))
    assert {s > ORDER // 2, ORDER - s > ORDER // 2} == {True, False}
    assert twin != bundle
    assert verify_payload(twin, (key.trusted(),)) == verify_payload(bundle, (key.trusted(),))


@pytest.mark.parametrize(
    "spelling",
    [
        lambda text: text.rstrip("="),
        lambda text: text + "=",
        lambda text: text + "\n",
        lambda text: " " + text,
        lambda text: text[:4] + "\n" + text[4:],
        lambda text: text.replace("+", "-").replace("/", "_") + "-",
        lambda text: text + "AA==",
    ],
)
def test_one_signature_has_one_spelling(spelling: Callable[[str], str], key: PrivateKey) -> None:
    def edit(bundle: dict[str, Any]) -> None:
        signature = bundle["dsseEnvelope"]["signatures"][0]
        before, signature["sig"] = signature["sig"], spelling(signature["sig"])
        assert signature["sig"] != before

    # A signature whose length needs padding, so that the padding can be left out.
    bundle = oms.sign(DIGESTS, key)
    while len(signature_of(bundle)) % 3 == 0:
        bundle = oms.sign({**DIGESTS, f"{len(bundle)}.bin": "3" * 64}, key)
    assert refusal_of(edited(bundle, edit), key.trusted()).code == "AOTC-G004"


def test_a_statement_of_another_kind_is_not_replayed(key: PrivateKey) -> None:
    signed = oms.sign(DIGESTS, key)
    with pytest.raises(AotcError) as caught:
        statements.verify(signed, (key.trusted(),), predicate_type="https://aotc.example/approval")
    assert caught.value.code == "AOTC-G004"
    # With another type, the signed bytes are no longer those of the bundle.
    document = json.loads(signed)
    statement = json.loads(base64.b64decode(document["dsseEnvelope"]["payload"]))
    statement["predicateType"] = "https://aotc.example/approval"
    document["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    with pytest.raises(AotcError) as caught:
        statements.verify(json.dumps(document).encode(), (key.trusted(),))
    assert caught.value.code == "AOTC-G003"


def test_the_lengths_are_signed_too(key: PrivateKey) -> None:
    # Without them, bytes could move between type and payload; so DSSE encodes the lengths.
    assert dsse.pae("ab", b"c") != dsse.pae("a", b"bc") != dsse.pae("a", b" 1 bc")


@pytest.mark.parametrize(
    ("pem", "found"),
    [
        ("", "something else"),
        ("-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n", "something else"),
        (
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
            "bytes that are not a key",
        ),
        ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== x", "something else"),
    ],
)
def test_text_that_is_not_a_key_trusts_nobody(pem: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text(pem)
    with pytest.raises(AotcError) as caught:
        load_public(tmp_path / "key.pub")
    assert (caught.value.code, caught.value.found) == ("AOTC-G013", found)


def test_a_point_that_is_not_on_the_curve(key: PrivateKey, tmp_path: Path) -> None:
    body = "".join(key.public_pem.splitlines()[1:-1])
    raw = bytearray(base64.b64decode(body))
    raw[-1] ^= 1
    text = base64.b64encode(bytes(raw)).decode()
    pem = f"-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n"
    (tmp_path / "key.pub").write_text(pem)
    with pytest.raises(AotcError) as caught:
        load_public(tmp_path / "key.pub")
    assert (caught.value.code, caught.value.found) == ("AOTC-G013", "bytes that are not a key")
    assert refusal_of(oms.sign(DIGESTS, key), TrustedKey(pem=pem, origin="x")).code == "AOTC-G013"
