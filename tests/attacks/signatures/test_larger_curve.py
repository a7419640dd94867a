"""Keys on P-384: OMS allows them, so they are verified, with the hash of their curve alone."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from made_certificates import Issued, authority, leaf, public_pem
from policy_host import SIGNATURE
from policy_setting import Setting
from signed_payload import verify_payload

from aotc.base.errors import AotcError
from aotc.spec.trust_anchors import TrustedKey, key_id
from aotc.trust import dsse, oms
from aotc.trust.gate import verify
from aotc.trust.key_loading import load_private, load_public
from aotc.trust.signers import load_signer

DIGESTS = {"aotc.json": "2" * 64, "model/model.onnx": "1" * 64}


@pytest.fixture(scope="module")
def secret() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def signed(
    bundle: bytes,
    secret: ec.EllipticCurvePrivateKey,
    digest: hashes.HashAlgorithm,
    certificate: Issued | None = None,
) -> bytes:
    """The same statement, signed by another key."""
    document: dict[str, Any] = json.loads(bundle)
    payload = base64.b64decode(document["dsseEnvelope"]["payload"])
    signature = secret.sign(dsse.pae(dsse.IN_TOTO, payload), ec.ECDSA(digest))
    document["dsseEnvelope"]["signatures"][0]["sig"] = base64.b64encode(signature).decode()
    material = {"publicKey": {"hint": key_id(public_pem(secret))}, "tlogEntries": []}
    if certificate is not None:
        der = certificate.certificate.public_bytes(serialization.Encoding.DER)
        listed = [{"rawBytes": base64.b64encode(der).decode()}]
        material = {"x509CertificateChain": {"certificates": listed}, "tlogEntries": []}
    document["verificationMaterial"] = material
    return json.dumps(document).encode()


def test_an_artifact_that_such_a_key_signed(
    secret: ec.EllipticCurvePrivateKey, host: Setting
) -> None:
    place = host.artifact / "attestations" / SIGNATURE
    original = place.read_bytes()
    public = host.folder / "large.pub"
    public.write_text(public_pem(secret))
    host.policy["keys"] = [{"id": "large", "pem": public_pem(secret), "usage": ["oms"]}]
    host.rule["require"] = [{"predicate": "oms", "signers": ["large"]}]
    host.write()
    place.write_bytes(signed(original, secret, hashes.SHA384()))
    assert verify(host.artifact, key=public).authentic
    assert host.codes() == []
    for digest in (hashes.SHA256(), hashes.SHA512()):
        place.write_bytes(signed(original, secret, digest))
        assert [item.code for item in verify(host.artifact, key=public).refusals] == ["AOTC-G003"]
        assert host.codes() == ["AOTC-G003"]


def test_a_certificate_on_it(secret: ec.EllipticCurvePrivateKey, host: Setting) -> None:
    root = authority("root", secret=ec.generate_private_key(ec.SECP384R1()))
    certified = leaf(root, secret)
    bundle = oms.sign(DIGESTS, host.keys["release"])
    good = signed(bundle, secret, hashes.SHA384(), certified)
    assert verify_payload(good, (root.authority,)).key.pem == public_pem(secret)
    bad = signed(bundle, secret, hashes.SHA256(), certified)
    with pytest.raises(AotcError) as caught:
        verify_payload(bad, (root.authority,))
    assert caught.value.code == "AOTC-G003"


def test_the_hash_of_a_curve_is_not_that_of_another(host: Setting) -> None:
    """A key on P-256 signs over SHA-256 alone."""
    small = ec.generate_private_key(ec.SECP256R1())
    bundle = oms.sign(DIGESTS, host.keys["release"])
    anchor = TrustedKey(pem=public_pem(small), origin="x")
    assert verify_payload(signed(bundle, small, hashes.SHA256()), (anchor,))
    with pytest.raises(AotcError) as caught:
        verify_payload(signed(bundle, small, hashes.SHA384()), (anchor,))
    assert caught.value.code == "AOTC-G003"


def test_nothing_is_signed_with_it(secret: ec.EllipticCurvePrivateKey, tmp_path: Path) -> None:
    """Not every verifier takes it."""
    private = tmp_path / "large.pem"
    private.touch(0o600)
    private.write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    (tmp_path / "large.pub").write_text(public_pem(secret))
    command = tmp_path / "signer.yaml"
    stated = {"schema": "aotc.signer/1", "command": ["true"], "public_key": "large.pub"}
    command.write_text(yaml.safe_dump(stated))
    assert load_public(tmp_path / "large.pub")
    for load, path in ((load_private, private), (load_signer, command)):
        with pytest.raises(AotcError) as caught:
            load(path)
        assert caught.value.code == "AOTC-I023"


def test_what_model_signing_signs_with_it(
    secret: ec.EllipticCurvePrivateKey, tmp_path: Path
) -> None:
    pytest.importorskip("model_signing")
    (tmp_path / "payload").mkdir()
    (tmp_path / "payload" / "aotc.json").write_text("{}")
    (tmp_path / "large.pem").write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    words = ("sign", "key", "payload", "--signature", "s.json", "--private_key", "large.pem")
    subprocess.run([sys.executable, "-m", "model_signing", *words], cwd=tmp_path, check=True)
    anchor = TrustedKey(pem=public_pem(secret), origin="x")
    found = verify_payload((tmp_path / "s.json").read_bytes(), (anchor,))
    assert set(found.digests) == {"aotc.json"}
