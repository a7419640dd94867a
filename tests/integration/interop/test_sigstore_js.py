"""sigstore's library for Node verifies signatures of aotc, and the other way round."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from built_artifact import BuiltArtifact
from signed_payload import verify_payload
from sigstore_js import PINNED, ROOT, SigstoreJs, install

from aotc import verify
from aotc.base.errors import AotcError
from aotc.spec.trust_anchors import key_id
from aotc.trust import key_files, oms
from aotc.trust.key_loading import load_public

VERIFY = ROOT / "examples" / "verifiers" / "verify.mjs"


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory) -> SigstoreJs:
    return install(tmp_path_factory.mktemp("node"))


def altered(bundle: Path, target: Path, **fields: Any) -> Path:
    """A copy of a bundle with other fields in its envelope."""
    document = json.loads(bundle.read_bytes())
    document["dsseEnvelope"].update(fields)
    target.write_text(json.dumps(document))
    return target


def flipped(text: str) -> str:
    """Base64 of the same bytes, with one bit of the middle one flipped."""
    data = bytearray(base64.b64decode(text))
    data[len(data) // 2] ^= 1
    return base64.b64encode(data).decode()


def test_every_bundle_of_a_build_is_accepted(js: SigstoreJs, digits: BuiltArtifact) -> None:
    bundles = sorted((digits.path / "attestations").iterdir())
    assert len(bundles) == 4
    done = js.run(VERIFY, digits.public_key, *bundles)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"verified {oms.PREDICATE_TYPE}" in done.stdout
    assert done.stdout.count(": verified ") == 4


def test_a_flipped_statement_or_signature_is_refused(
    js: SigstoreJs, digits: BuiltArtifact, tmp_path: Path
) -> None:
    envelope = json.loads(digits.signature.read_bytes())["dsseEnvelope"]
    signature = {"sig": flipped(envelope["signatures"][0]["sig"]), "keyid": ""}
    bad = (
        altered(digits.signature, tmp_path / "statement", payload=flipped(envelope["payload"])),
        altered(digits.signature, tmp_path / "signature", signatures=[signature]),
        altered(digits.signature, tmp_path / "type", payloadType="text/plain"),
    )
    for bundle in bad:
        done = js.run(VERIFY, digits.public_key, bundle)
        assert (done.returncode, done.stdout) == (1, "")
        assert "SIGNATURE_ERROR: signature verification failed" in done.stderr


def test_another_key_is_refused(js: SigstoreJs, digits: BuiltArtifact, tmp_path: Path) -> None:
    _, other = key_files.generate(tmp_path / "other.pem")
    done = js.run(VERIFY, other, digits.signature)
    assert (done.returncode, done.stdout) == (1, "")
    assert "PUBLIC_KEY_ERROR: key not found" in done.stderr
    # A hint that names the other key merely selects it.
    document = json.loads(digits.signature.read_bytes())
    hint = key_id(other.read_text())
    document["verificationMaterial"]["publicKey"]["hint"] = hint
    (tmp_path / "renamed").write_text(json.dumps(document))
    done = js.run(VERIFY, other, tmp_path / "renamed")
    assert done.returncode == 1
    assert "SIGNATURE_ERROR" in done.stderr


def test_a_chain_of_certificates_is_not_for_it(
    js: SigstoreJs, digits: BuiltArtifact, tmp_path: Path
) -> None:
    """As the guide says: its bundles v0.3 have one certificate, of a service, and no chain."""
    document = json.loads(digits.signature.read_bytes())
    certificates = [{"rawBytes": base64.b64encode(b"certificate").decode()}]
    document["verificationMaterial"] = {
        "x509CertificateChain": {"certificates": certificates},
        "tlogEntries": [],
    }
    (tmp_path / "certified").write_text(json.dumps(document))
    done = js.run(VERIFY, digits.public_key, tmp_path / "certified")
    assert done.returncode == 1
    assert "invalid bundle verificationMaterial.content.$case" in done.stderr


def test_the_gate_takes_a_bundle_that_it_signed(
    js: SigstoreJs, digits: BuiltArtifact, tmp_path: Path
) -> None:
    artifact = Path(shutil.copytree(digits.path, tmp_path / "a.aotc"))
    private, public = key_files.generate(tmp_path / "node.pem")
    envelope = json.loads(digits.signature.read_bytes())["dsseEnvelope"]
    document = json.loads(base64.b64decode(envelope["payload"]))
    # Any spelling of the JSON may be signed.
    (tmp_path / "statement.json").write_text(json.dumps(document, indent=3))
    bundle = artifact / "attestations" / "oms-node.sigstore.json"
    script = PINNED / "sign.mjs"
    done = js.run(script, private, tmp_path / "statement.json", bundle)
    assert done.returncode == 0, done.stderr
    assert js.run(VERIFY, public, bundle).returncode == 0
    report = verify(artifact, key=public)
    assert report.authentic
    assert report.signers == (key_id(public.read_text()),)

    signed = json.loads(bundle.read_bytes())["dsseEnvelope"]
    altered(bundle, bundle, payload=flipped(signed["payload"]))
    with pytest.raises(AotcError) as caught:
        verify_payload(bundle.read_bytes(), load_public(public))
    assert caught.value.code == "AOTC-G003"
    assert not verify(artifact, key=public).authentic


def test_the_lock_file_pins_every_package_and_names_no_place() -> None:
    text = (PINNED / "package-lock.json").read_text()
    packages = json.loads(text)["packages"]
    wanted = json.loads((PINNED / "package.json").read_text())["dependencies"]
    assert packages.pop("")["dependencies"] == wanted
    assert {f"node_modules/{name}" for name in wanted} <= set(packages)
    for name, each in packages.items():
        assert re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", each["integrity"]), name
        assert "resolved" not in each
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
