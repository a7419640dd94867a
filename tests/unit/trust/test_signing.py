"""DSSE, the OMS statement and other attestations: round trips, and every malformed part."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from signed_payload import verify_payload

from aotc.base.errors import AotcError
from aotc.spec.trust_anchors import TrustedKey
from aotc.trust import dsse, oms, statements
from aotc.trust.key_files import generate
from aotc.trust.key_loading import PrivateKey, load_public

DIGESTS = {"model/model.onnx": "1" * 64, "aotc.json": "2" * 64, "model-b/x": "3" * 64}


def test_pae_is_that_of_the_protocol() -> None:
    assert (
        dsse.pae("http://example.com/HelloWorld", b"hello world")
        == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_oms_round_trip_is_deterministic(key: PrivateKey, trust: tuple[TrustedKey, ...]) -> None:
    bundle = oms.sign(DIGESTS, key)
    assert bundle == oms.sign(dict(reversed(DIGESTS.items())), key)
    signed = verify_payload(bundle, trust)
    assert dict(signed.digests) == DIGESTS
    assert signed.key == trust[0]
    document = json.loads(bundle)
    assert document["verificationMaterial"]["publicKey"]["hint"] == key.key_id
    statement = json.loads(base64.b64decode(document["dsseEnvelope"]["payload"]))
    names = [resource["name"] for resource in statement["predicate"]["resources"]]
    # Folder by folder, as model_signing lists them.
    assert names == ["aotc.json", "model/model.onnx", "model-b/x"]
    assert statement["subject"][0]["digest"]["sha256"] == oms.root_digest(DIGESTS[n] for n in names)
    assert statement["predicate"]["serialization"] == {
        "method": "files",
        "hash_type": "sha256",
        "allow_symlinks": False,
        "ignore_paths": [],
    }


def _edit(bundle: bytes, edit: Callable[[dict[str, Any]], object]) -> bytes:
    document = json.loads(bundle)
    edit(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (lambda b: b.update(mediaType="x"), "mediaType: expected application/vnd.dev"),
        (lambda b: b.update(more=1), "more: unknown field"),
        (lambda b: b.pop("dsseEnvelope"), "dsseEnvelope: missing"),
        (lambda b: b["dsseEnvelope"].update(payloadType="x"), "dsseEnvelope.payloadType"),
        (lambda b: b["dsseEnvelope"].update(signatures=[]), "expected exactly one"),
        (lambda b: b["dsseEnvelope"].update(payload="é"), "dsseEnvelope.payload: is not base64"),
        (lambda b: b["dsseEnvelope"].update(payload="QR=="), "is not canonical base64"),
        (lambda b: b["dsseEnvelope"].update(payload=1), "dsseEnvelope.payload: expected a string"),
        (lambda b: b["verificationMaterial"].update(certificate={}), "expected one of publicKey"),
        (lambda b: b["verificationMaterial"].pop("publicKey"), "expected one of publicKey"),
        (lambda b: b.update(verificationMaterial={"certificate": {}}), "rawBytes: missing"),
        (
            lambda b: b.update(verificationMaterial={"x509CertificateChain": {"certificates": []}}),
            "expected 1 to 8 certificates",
        ),
        (
            lambda b: b["verificationMaterial"]["publicKey"].update(hint=1),
            "hint: expected a string",
        ),
        (lambda b: b["dsseEnvelope"]["signatures"][0].update(keyid="x"), "keyid: is not the key"),
    ],
)
def test_malformed_bundles(
    edit: Callable[[dict[str, Any]], object],
    found: str,
    key: PrivateKey,
    trust: tuple[TrustedKey, ...],
) -> None:
    with pytest.raises(AotcError) as caught:
        verify_payload(_edit(oms.sign(DIGESTS, key), edit), trust)
    assert caught.value.code == "AOTC-G004"
    assert found in caught.value.found


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (lambda s: s.update(_type="x"), "_type: expected https://in-toto.io/Statement/v1"),
        (lambda s: s.update(predicateType="x"), "predicateType: expected"),
        (lambda s: s["predicate"]["serialization"].update(method="shards"), "expected files"),
        (lambda s: s["predicate"]["serialization"].update(hash_type="md5"), "expected sha256"),
        (lambda s: s["predicate"].update(resources=[]), "expected a list of files"),
        (lambda s: s["predicate"]["resources"][0].update(algorithm="md5"), "is not sha256"),
        (lambda s: s["predicate"]["resources"][0].update(name="../x"), "does not match"),
        (lambda s: s["predicate"]["resources"][0].update(name="/x"), "does not match"),
        (lambda s: s["predicate"]["resources"][0].update(name="a/../x"), "does not match"),
        (lambda s: s["predicate"]["resources"].append(s["predicate"]["resources"][0]), "twice"),
        (lambda s: s["predicate"]["resources"].reverse(), "subject: is not the digest"),
        (lambda s: s.update(subject=[]), "subject: is not the digest"),
    ],
)
def test_malformed_statements_are_refused_though_signed(
    edit: Callable[[dict[str, Any]], object],
    found: str,
    key: PrivateKey,
    trust: tuple[TrustedKey, ...],
) -> None:
    statement = json.loads(dsse.parse(oms.sign(DIGESTS, key)).payload)
    edit(statement)
    with pytest.raises(AotcError) as caught:
        verify_payload(dsse.sign(statement, key), trust)
    assert caught.value.code == "AOTC-G004"
    assert found in caught.value.found


def test_a_signature_over_other_bytes_is_invalid(
    key: PrivateKey, trust: tuple[TrustedKey, ...]
) -> None:
    other = json.loads(oms.sign({**DIGESTS, "aotc.json": "4" * 64}, key))["dsseEnvelope"]["payload"]
    bundle = _edit(oms.sign(DIGESTS, key), lambda b: b["dsseEnvelope"].update(payload=other))
    with pytest.raises(AotcError) as caught:
        verify_payload(bundle, trust)
    assert caught.value.code == "AOTC-G003"


def test_a_bundle_without_a_hint_is_tried_with_every_key(
    key: PrivateKey, trust: tuple[TrustedKey, ...], tmp_path: Path
) -> None:
    bundle = _edit(
        oms.sign(DIGESTS, key), lambda b: b["verificationMaterial"]["publicKey"].pop("hint")
    )
    other = load_public(generate(tmp_path / "b.pem")[1])
    assert verify_payload(bundle, (*other, *trust)).key == trust[0]
    for keys in (other, ()):
        with pytest.raises(AotcError) as caught:
            verify_payload(bundle, keys)
        assert caught.value.code == "AOTC-G002"


def test_attestations(key: PrivateKey, trust: tuple[TrustedKey, ...]) -> None:
    bundle = statements.sign("https://example.com/p", {"a": [1]}, {"aotc.json": "2" * 64}, key)
    kind, predicate, subjects, signer = statements.verify(bundle, trust)
    assert kind == "https://example.com/p"
    assert (predicate, subjects, signer) == ({"a": [1]}, {"aotc.json": "2" * 64}, trust[0])
    assert statements.read_unverified(bundle) == (
        "https://example.com/p",
        {"a": [1]},
        {"aotc.json": "2" * 64},
        key.key_id,
    )
    with pytest.raises(AotcError) as caught:
        statements.verify(bundle, trust, predicate_type="https://example.com/q")
    assert caught.value.line() == (
        "AOTC-G004 the signature bundle is malformed (found predicateType: "
        "expected https://example.com/q, found https://example.com/p)"
    )
    with pytest.raises(AotcError) as caught:
        verify_payload(bundle, trust)
    assert caught.value.code == "AOTC-G004"
    assert caught.value.found.startswith("predicateType: expected")
    with pytest.raises(AotcError) as caught:
        statements.verify(bundle, ())
    assert caught.value.code == "AOTC-G002"


def test_an_unusable_trusted_key_is_named(key: PrivateKey) -> None:
    broken = TrustedKey(
        pem="-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", origin="x"
    )
    with pytest.raises(AotcError) as caught:
        verify_payload(oms.sign(DIGESTS, key), (broken,))
    assert (caught.value.code, caught.value.where) == ("AOTC-G013", "x")
