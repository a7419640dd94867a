"""Key files whose password is derived in billions of rounds: refused before any of them is done."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from refusals import refusal

from aotc.trust import key_files, key_loading
from aotc.trust.key_loading import load_private, load_public

PASSWORD = b"password"


def information(form: serialization.Encoding = serialization.Encoding.DER) -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        form, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def stating(rounds: int, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A key file that states so many rounds."""
    monkeypatch.setattr(key_files, "ROUNDS", rounds)
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", lambda *_: bytes(32))
    return key_files.encrypted_pem(information(), PASSWORD)


@pytest.mark.parametrize("rounds", [key_files.MAX_ROUNDS + 1, 2**31, 2**63, 2**200])
@pytest.mark.parametrize("edit", ["", "headers", "label", "spaces"])
def test_very_many_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int, edit: str
) -> None:
    data = stating(rounds, monkeypatch)
    if edit == "headers":
        data = re.sub(rb"KEY-----\n", b"KEY-----\nA: MII\nB: x\n\n", data, count=1)
    elif edit == "label":
        data = data.replace(b"ENCRYPTED PRIVATE", b"PRIVATE")
    elif edit == "spaces":
        data = data.replace(b"\n", b" \r\n")
    path = tmp_path / "k.pem"
    path.write_bytes(data)
    # Nothing is asked of the user either.
    monkeypatch.setattr(key_loading, "password_of", lambda path: pytest.fail("it asks"))
    error = refusal(load_private, path)
    assert error.code == "AOTC-I023"
    assert str(key_files.MAX_ROUNDS) in error.found


def encrypted(path: Path, *words: str) -> Path:
    """A key file that OpenSSL encrypted."""
    made = ["openssl", "pkcs8", "-topk8", "-passout", "pass:password", *words, "-out", str(path)]
    plain = information(serialization.Encoding.PEM)
    subprocess.run(made, input=plain, check=True, capture_output=True)
    return path


def test_the_derivation_of_old_key_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_files, "MAX_ROUNDS", 5000)
    path = encrypted(tmp_path / "k.pem", "-v1", "PBE-SHA1-3DES", "-iter", "5001")
    assert refusal(load_private, path, password=PASSWORD).code == "AOTC-I023"


def test_scrypt_that_goes_through_very_much_memory(tmp_path: Path) -> None:
    path = encrypted(tmp_path / "k.pem", "-scrypt")
    content = base64.b64decode("".join(path.read_text().splitlines()[1:-1]))
    # Cost 16384, block size 8, parallelization 1.
    usual = bytes.fromhex("02024000 020108 020101")
    assert usual in content
    costly = content.replace(usual, bytes.fromhex("02024000 020108 02017f"))
    text = base64.encodebytes(costly).decode()
    path.write_text(
        f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{text}-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    error = refusal(load_private, path, password=PASSWORD)
    assert (error.code, error.found[:6]) == ("AOTC-I023", "scrypt")


def test_usual_key_files_are_read(tmp_path: Path) -> None:
    for words in ((), ("-scrypt",), ("-v2", "aes-256-cbc", "-iter", "100000")):
        path = encrypted(tmp_path / "k.pem", *words)
        assert load_private(path, password=PASSWORD).key_id
    path.write_bytes(key_files.encrypted_pem(information(), PASSWORD))
    assert load_private(path, password=PASSWORD).key_id


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PRIVATE KEY-----\n" * 37_000,
        "-----BEGIN PUBLIC KEY-----" + " " * 1_000_000,
        "-----BEGIN CERTIFICATE-----" + "\n" * 1_000_000,
        "-----BEGIN " + "A" * 1_000_000,
    ],
)
def test_blocks_that_end_nowhere(tmp_path: Path, text: str) -> None:
    """Each expression matches in one way: by all of them this would take minutes."""
    path = tmp_path / "k.pem"
    path.write_text(text)
    assert refusal(load_private, path).code == "AOTC-I023"
    assert refusal(load_public, path).code == "AOTC-G013"
