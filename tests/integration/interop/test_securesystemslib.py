"""securesystemslib verifies envelopes of aotc, by one key or several, and aotc verifies its own."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from built_artifact import BuiltArtifact
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from repository import ROOT
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey
from signed_payload import verify_payload

from aotc import verify
from aotc.base.errors import AotcError
from aotc.spec.trust_anchors import key_id
from aotc.trust import dsse, key_files, oms
from aotc.trust.attesting import sign
from aotc.trust.key_loading import load_private, load_public

PROGRAM = ROOT / "examples" / "verifiers" / "verify.py"


@pytest.fixture
def artifact(digits: BuiltArtifact, tmp_path: Path) -> Path:
    """A copy of the artifact that a second key, second.pem, has signed as well."""
    copy = Path(shutil.copytree(digits.path, tmp_path / "a.aotc"))
    private, _ = key_files.generate(tmp_path / "second.pem")
    sign(copy, load_private(private), trust=digits.public_key)
    return copy


def oms_bundles(artifact: Path) -> list[Path]:
    return sorted((artifact / "attestations").glob("oms*"))


def envelope(bundle: Path) -> Envelope:
    """The envelope as the library reads it, with signatures by the key that the bundle names."""
    document = json.loads(bundle.read_bytes())
    for signature in document["dsseEnvelope"]["signatures"]:
        signature["keyid"] = document["verificationMaterial"]["publicKey"]["hint"]
    return Envelope.from_dict(document["dsseEnvelope"])


def public_key(path: Path) -> SSlibKey:
    return SSlibKey.from_crypto(
        load_pem_public_key(path.read_bytes()), keyid=key_id(path.read_text())
    )


def program(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROGRAM, *arguments], capture_output=True, text=True, check=False
    )


def test_every_envelope_of_a_build_verifies(digits: BuiltArtifact) -> None:
    key = public_key(digits.public_key)
    bundles = sorted((digits.path / "attestations").iterdir())
    assert len(bundles) == 4
    for bundle in bundles:
        read = envelope(bundle)
        assert read.payload_type == dsse.IN_TOTO
        assert read.pae() == dsse.pae(read.payload_type, read.payload)
        assert read.verify([key], 1) == {key.keyid: key}


def test_two_keys_reach_a_threshold_of_two(artifact: Path, digits: BuiltArtifact) -> None:
    trusted = [public_key(digits.public_key), public_key(artifact.parent / "second.pub")]
    first, second = map(envelope, oms_bundles(artifact))
    assert first.payload == second.payload
    with pytest.raises(VerificationError):
        first.verify(trusted, 2)
    first.signatures.update(second.signatures)
    assert set(first.verify(trusted, 2)) == {key.keyid for key in trusted}


def test_the_example_verifies_and_refuses(
    artifact: Path, digits: BuiltArtifact, tmp_path: Path
) -> None:
    one, two = oms_bundles(artifact)
    known = ("--key", digits.public_key, "--key", tmp_path / "second.pub")
    done = program("--threshold", "2", *known, one, two)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"verified {oms.PREDICATE_TYPE} by 2 keys\n"
    assert program(*known, one).returncode == 0
    for refused in (
        ("--threshold", "2", *known, one, one),
        ("--threshold", "2", "--key", digits.public_key, "--key", digits.public_key, one, two),
        ("--key", tmp_path / "second.pub", digits.signature),
        (*known, one, artifact / "attestations" / "sbom.sigstore.json"),
    ):
        done = program(*refused)
        assert (done.returncode, done.stdout) == (1, "")
        assert "Traceback" not in done.stderr
    document = json.loads(one.read_bytes())
    payload = base64.b64decode(document["dsseEnvelope"]["payload"]).replace(b"payload", b"pAyload")
    document["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    one.write_text(json.dumps(document))
    assert program(*known, one).returncode == 1


def test_the_gate_takes_an_envelope_that_it_signed(digits: BuiltArtifact, tmp_path: Path) -> None:
    artifact = Path(shutil.copytree(digits.path, tmp_path / "a.aotc"))
    signed = Envelope(envelope(digits.signature).payload, dsse.IN_TOTO, {})
    bundles = []
    for name in ("one", "two"):
        private, public = key_files.generate(tmp_path / f"{name}.pem")
        secret = load_pem_private_key(private.read_bytes(), password=None)
        signed.sign(CryptoSigner(secret, public_key(public)))
        bundles.append((artifact / "attestations" / f"oms-{name}.sigstore.json", public))
    stated = signed.to_dict()
    assert len(stated["signatures"]) == 2

    def bundle(signatures: list[dict[str, str]], public: Path) -> bytes:
        hint = key_id(public.read_text())
        document = {
            "mediaType": dsse.BUNDLE_MEDIA_TYPE,
            "verificationMaterial": {"publicKey": {"hint": hint}},
            "dsseEnvelope": {**stated, "signatures": signatures},
        }
        return json.dumps(document).encode()

    for signature, (path, public) in zip(stated["signatures"], bundles, strict=True):
        path.write_bytes(bundle([signature], public))
        assert verify(artifact, key=public).authentic
        # A bundle has exactly one signature; several keys make several bundles.
        with pytest.raises(AotcError) as caught:
            verify_payload(bundle(stated["signatures"], public), load_public(public))
        assert caught.value.code == "AOTC-G004"
    both = tmp_path / "both.pub"
    both.write_text("".join(public.read_text() for _, public in bundles))
    report = verify(artifact, key=both)
    assert report.authentic
    assert len(report.signers) == 2
