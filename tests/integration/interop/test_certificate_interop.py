"""Certificates made with openssl as in the guide: model_signing and aotc accept each other's."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from signed_payload import verify_payload

from aotc.base.errors import AotcError
from aotc.spec.trust_anchors import TrustedAuthority
from aotc.trust import key_files, oms
from aotc.trust.signers import load_signer

pytest.importorskip("model_signing")
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")

AUTHORITY = """\
[req]
distinguished_name = name
prompt = no
x509_extensions = ca
[name]
CN = Example CA
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[release]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = codeSigning
"""


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.crt, release.pem, release.crt, both in signing.pem, and a payload."""
    folder = tmp_path_factory.mktemp("certified")
    (folder / "ca.cnf").write_text(AUTHORITY)
    key_files.generate(folder / "release.pem")
    openssl = "openssl"
    run(folder, openssl, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "ca.pem")
    run(folder, openssl, "req", "-x509", "-new", "-key", "ca.pem", "-config", "ca.cnf",
        "-days", "3650", "-out", "ca.crt")  # fmt: skip
    run(folder, openssl, "req", "-new", "-key", "release.pem", "-subj", "/CN=release/O=Example",
        "-config", "ca.cnf", "-out", "release.csr")  # fmt: skip
    run(folder, openssl, "x509", "-req", "-in", "release.csr", "-CA", "ca.crt", "-CAkey", "ca.pem",
        "-CAcreateserial", "-days", "365", "-extfile", "ca.cnf", "-extensions", "release",
        "-out", "release.crt")  # fmt: skip
    (folder / "signing.pem").write_text(
        (folder / "release.pem").read_text() + (folder / "release.crt").read_text()
    )
    for name in ("aotc.json", "model/model.onnx"):
        path = folder / "payload" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 100)
    return folder


def digests_of(folder: Path) -> dict[str, str]:
    payload = folder / "payload"
    return {
        path.relative_to(payload).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in payload.rglob("*")
        if path.is_file()
    }


def authorities(folder: Path) -> tuple[TrustedAuthority, ...]:
    return (TrustedAuthority(pem=(folder / "ca.crt").read_text(), origin="ca.crt"),)


def test_model_signing_accepts_our_certified_signature(certificates: Path) -> None:
    signer = load_signer(certificates / "signing.pem")
    assert len(signer.chain) == 1
    (certificates / "ours.json").write_bytes(oms.sign(digests_of(certificates), signer))
    command = (
        sys.executable, "-m", "model_signing", "verify", "certificate", "payload",
        "--signature", "ours.json", "--certificate_chain", "ca.crt",
    )  # fmt: skip
    run(certificates, *command)
    signed = verify_payload((certificates / "ours.json").read_bytes(), authorities(certificates))
    assert signed.key.pem == (certificates / "release.pub").read_text()
    assert signed.key.certificate in (
        "O=Example,CN=release, issued by CN=Example CA",
        "CN=release,O=Example, issued by CN=Example CA",
    )


def test_we_accept_the_certified_signature_of_model_signing(certificates: Path) -> None:
    run(
        certificates, sys.executable, "-m", "model_signing", "sign", "certificate", "payload",
        "--signature", "theirs.json", "--private_key", "release.pem",
        "--signing_certificate", "release.crt", "--certificate_chain", "ca.crt",
    )  # fmt: skip
    signed = verify_payload((certificates / "theirs.json").read_bytes(), authorities(certificates))
    assert dict(signed.digests) == digests_of(certificates)
    with pytest.raises(AotcError) as caught:
        verify_payload((certificates / "theirs.json").read_bytes(), ())
    assert caught.value.code == "AOTC-G002"


def test_a_certificate_of_another_key_is_refused(certificates: Path) -> None:
    key_files.generate(certificates / "other.pem")
    mixed = certificates / "mixed.pem"
    mixed.write_text(
        (certificates / "other.pem").read_text() + (certificates / "release.crt").read_text()
    )
    with pytest.raises(AotcError) as caught:
        load_signer(mixed)
    assert (caught.value.code, caught.value.what) == (
        "AOTC-I023",
        "the first certificate is not for this key",
    )


def test_a_signer_file_names_certificates(certificates: Path) -> None:
    program = "import sys\nfrom pathlib import Path\n"
    program += "from aotc.trust.key_loading import load_private\n"
    program += "key = load_private(Path('release.pem'))\n"
    program += "sys.stdout.buffer.write(key.sign(sys.stdin.buffer.read()))\n"
    (certificates / "program.py").write_text(program)
    (certificates / "signer.yaml").write_text(
        f"schema: aotc.signer/1\ncommand: [{sys.executable}, program.py]\n"
        "public_key: release.pub\ncertificates: release.crt\n"
    )
    bundle = oms.sign(digests_of(certificates), load_signer(certificates / "signer.yaml"))
    assert bundle == oms.sign(digests_of(certificates), load_signer(certificates / "signing.pem"))
    assert verify_payload(bundle, authorities(certificates))
