"""Other implementations of the format accept signatures of aotc, and the other way round."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from signed_payload import verify_payload

from aotc.trust import dsse, oms
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private, load_public

pytest.importorskip("model_signing")


@pytest.fixture
def payload(tmp_path: Path) -> Path:
    folder = tmp_path / "payload"
    for name in ("aotc.json", "manifest.json", "model/portable/model.onnx", "model-b/x y.bin"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 100)
    return folder


def digests_of(payload: Path) -> dict[str, str]:
    return {
        path.relative_to(payload).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in payload.rglob("*")
        if path.is_file()
    }


def model_signing(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "model_signing", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_model_signing_command_accepts_our_signature(payload: Path, tmp_path: Path) -> None:
    private, public = generate(tmp_path / "key.pem")
    signature = tmp_path / "oms.sigstore.json"
    signature.write_bytes(oms.sign(digests_of(payload), load_private(private)))
    command = ("verify", "key", payload, "--signature", signature, "--public_key", public)
    done = model_signing(*command)
    assert done.returncode == 0, done.stderr
    (payload / "aotc.json").write_bytes(b"other")
    assert model_signing(*command).returncode != 0


def test_we_accept_the_signature_of_the_model_signing_command(
    payload: Path, tmp_path: Path
) -> None:
    private, public = generate(tmp_path / "key.pem")
    signature = tmp_path / "model.sig"
    done = model_signing("sign", "key", payload, "--signature", signature, "--private_key", private)
    assert done.returncode == 0, done.stderr
    signed = verify_payload(signature.read_bytes(), load_public(public))
    assert dict(signed.digests) == digests_of(payload)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_openssl_verifies_the_pre_authentication_encoding(payload: Path, tmp_path: Path) -> None:
    private, public = generate(tmp_path / "key.pem")
    envelope = json.loads(oms.sign(digests_of(payload), load_private(private)))["dsseEnvelope"]
    message = dsse.pae(envelope["payloadType"], base64.b64decode(envelope["payload"]))
    (tmp_path / "message").write_bytes(message)
    (tmp_path / "signature").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    done = subprocess.run(
        ["openssl", "dgst", "-sha256", "-verify", public, "-signature", "signature", "message"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "Verified OK\n")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_we_accept_what_openssl_signed(payload: Path, tmp_path: Path) -> None:
    private, public = generate(tmp_path / "key.pem")
    bundle = json.loads(oms.sign(digests_of(payload), load_private(private)))
    envelope = bundle["dsseEnvelope"]
    message = dsse.pae(envelope["payloadType"], base64.b64decode(envelope["payload"]))
    command = ["openssl", "dgst", "-sha256", "-sign", private]
    done = subprocess.run(command, input=message, capture_output=True, check=True)
    envelope["signatures"] = [{"sig": base64.b64encode(done.stdout).decode()}]
    signed = verify_payload(json.dumps(bundle).encode(), load_public(public))
    assert dict(signed.digests) == digests_of(payload)
