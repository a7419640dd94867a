"""Keys outside of the process: signing programs, good and bad, and a PKCS#11 token."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from built_artifact import DIGITS
from shared_workers import build
from signed_payload import verify_payload

from aotc import verify
from aotc.base.errors import AotcError
from aotc.spec.trust_anchors import key_id
from aotc.spec.yaml import strict_yaml
from aotc.trust import key_files, oms
from aotc.trust.key_loading import load_private, load_public
from aotc.trust.signers import load_signer

# Seconds, tried in turn until a program has reached the expected point.
LIMITS = (1, 8, 64)
DIGESTS = {"aotc.json": "2" * 64}
SIGNERS = DIGITS.parent / "signers"
SOFTHSM = Path("/usr/lib/softhsm/libsofthsm2.so")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return key_files.generate(tmp_path / "release.pem")


def signer_file(folder: Path, program: str, **fields: object) -> Path:
    """A signer file in `folder` whose program is this Python text."""
    (folder / "program.py").write_text("import os, sys, time\n" + textwrap.dedent(program))
    document = {
        "schema": "aotc.signer/1",
        "command": [sys.executable, "program.py"],
        "public_key": "release.pub",
        **fields,
    }
    path = folder / "signer.json"
    path.write_text(json.dumps(document))
    return path


LOADED = """
from pathlib import Path
from aotc.trust.key_loading import load_private
key = load_private(Path("release.pem"))
message = sys.stdin.buffer.read()
"""
GOOD = LOADED + "sys.stdout.buffer.write(key.sign(message))\n"
RAW = LOADED + (
    "from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature\n"
    "for number in decode_dss_signature(key.sign(message)):\n"
    "    sys.stdout.buffer.write(number.to_bytes(32, 'big'))\n"
)


@pytest.mark.parametrize(("program", "form"), [(GOOD, "der"), (RAW, "raw")])
def test_a_program_signs(program: str, form: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    signer = load_signer(signer_file(tmp_path, program, format=form))
    private = load_private(pair[0])
    assert (signer.key_id, signer.public_pem) == (private.key_id, pair[1].read_text())
    assert (signer.development, signer.chain) == (False, ())
    # The same key signs the same bytes, wherever it is kept.
    assert oms.sign(DIGESTS, signer) == oms.sign(DIGESTS, private)


def test_a_signer_file_may_hold_the_public_key(pair: tuple[Path, Path], tmp_path: Path) -> None:
    path = signer_file(tmp_path, GOOD, public_key=pair[1].read_text())
    pair[1].unlink()
    assert oms.sign(DIGESTS, load_signer(path))


def test_large_messages_pass(pair: tuple[Path, Path], tmp_path: Path) -> None:
    signer = load_signer(signer_file(tmp_path, GOOD))
    many = {f"{number:06}.bin": "3" * 64 for number in range(20_000)}
    assert dict(verify_payload(oms.sign(many, signer), load_public(pair[1])).digests) == many


@pytest.mark.parametrize(
    ("program", "fields", "what", "found"),
    [
        ("sys.exit(3)", {}, "the signer command failed", "3: "),
        (
            "sys.stderr.write('one\\n' * 20 + 'no card\\x1b[2J in the reader\\n'); sys.exit(1)",
            {},
            "the signer command failed",
            "1: one | one | one | one | no card\\x1b[2J in the reader",
        ),
        ("os.kill(os.getpid(), 9)", {}, "the signer command failed", "-9: "),
        ("sys.exit(0)", {}, "is not a signature by its public key", "0 bytes"),
        ("sys.stdout.write('OK\\n')", {}, "is not a signature by its public key", "3 bytes"),
        (
            LOADED + "sys.stdout.buffer.write(key.sign(message + b'x'))",
            {},
            "is not a signature by its public key",
            "bytes",
        ),
        (
            LOADED + "sys.stdout.buffer.write(key.sign(message) + b'\\n')",
            {},
            "is not a signature by its public key",
            "bytes",
        ),
        (GOOD, {"format": "raw"}, "is not a raw signature", "bytes"),
        ("sys.stdout.write('0' * 64)", {"format": "raw"}, "is not a signature by its", "bytes"),
        ("while True: sys.stdout.write('0' * 9999)", {}, "wrote too much", "nothing"),
        ("", {"command": ["./none"]}, "cannot be started", "No such file or directory"),
        ("", {"command": ["no-such-program-anywhere"]}, "cannot be started", "No such file"),
        ("", {"command": ["./release.pub"]}, "cannot be started", "Permission denied"),
    ],
)  # fmt: skip
def test_a_bad_program_signs_nothing(
    program: str,
    fields: dict[str, object],
    what: str,
    found: str,
    pair: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    path = signer_file(tmp_path, program, **fields)
    with pytest.raises(AotcError) as caught:
        oms.sign(DIGESTS, load_signer(path))
    assert (caught.value.code, caught.value.where) == ("AOTC-I033", str(path))
    assert what in caught.value.what
    assert found in caught.value.found


def test_a_program_that_takes_too_long_signs_nothing(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    program = "print('slow', file=sys.stderr, flush=True); time.sleep(600)"
    # The limit counts from the start; on a busy machine the program may not be that far.
    for seconds in LIMITS:
        path = signer_file(tmp_path, program, timeout_seconds=seconds)
        with pytest.raises(AotcError) as caught:
            oms.sign(DIGESTS, load_signer(path))
        assert (caught.value.code, caught.value.where) == ("AOTC-I033", str(path))
        assert "took too long" in caught.value.what
        if caught.value.found:
            break
    assert "slow" in caught.value.found


def test_the_time_limit_ends_what_the_program_started(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    program = """
    import fcntl, subprocess
    lock = open("lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    later = "import time; time.sleep(600); open('done', 'w')"
    subprocess.Popen([sys.executable, "-c", later], pass_fds=[lock.fileno()])
    open("started", "w")
    time.sleep(600)
    """
    for seconds in LIMITS:
        path = signer_file(tmp_path, program, timeout_seconds=seconds)
        with pytest.raises(AotcError):
            load_signer(path).sign(b"message")
        if (tmp_path / "started").exists():
            break
    assert (tmp_path / "started").exists()
    # The lock is free once all its holders have ended.
    with (tmp_path / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert not (tmp_path / "done").exists()


def test_there_is_no_shell(pair: tuple[Path, Path], tmp_path: Path) -> None:
    path = signer_file(tmp_path, "", command=["echo $(touch made); touch made"])
    with pytest.raises(AotcError) as caught:
        load_signer(path).sign(b"message")
    assert caught.value.code == "AOTC-I033"
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "expected a mapping, found nothing"),
        ("{", "not YAML"),
        ("schema: aotc.sign/1\ncommand: [a]\npublic_key: b\n", "schema: 'aotc.sign/1'"),
        ("schema: aotc.signer/1\ncommand: []\npublic_key: b\n", "command: 0 is less than 1"),
        ("schema: aotc.signer/1\ncommand: ['']\npublic_key: b\n", "command[0]: is empty"),
        ("schema: aotc.signer/1\ncommand: a b\npublic_key: b\n", "command: expected a list"),
        ("schema: aotc.signer/1\ncommand: [a]\n", "public_key: missing"),
        ("schema: aotc.signer/1\ncommand: [a]\npublic_key: b\nshell: true\n", "shell: unknown"),
        ("schema: aotc.signer/1\ncommand: [a]\npublic_key: b\ntimeout_seconds: 0\n", "less than 1"),
        ("schema: aotc.signer/1\ncommand: [a]\npublic_key: b\nformat: pem\n", "none of: der, raw"),
    ],
)
def test_a_malformed_signer_file_is_refused(text: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "signer.yaml"
    path.write_text(text)
    with pytest.raises(AotcError) as caught:
        load_signer(path)
    assert (caught.value.code, caught.value.where) == ("AOTC-I023", str(path))
    assert found in caught.value.found
    assert caught.value.fix.startswith("Correct the field")


def test_the_public_key_must_be_one_on_p256(pair: tuple[Path, Path], tmp_path: Path) -> None:
    for text in ("", pair[0].read_text(), pair[1].read_text() * 2):
        pair[1].write_text(text)
        with pytest.raises(AotcError) as caught:
            load_signer(signer_file(tmp_path, GOOD))
        assert caught.value.code == "AOTC-I023"
    pair[1].unlink()
    with pytest.raises(AotcError) as caught:
        load_signer(signer_file(tmp_path, GOOD))
    assert caught.value.code == "AOTC-I001"


@pytest.mark.skipif(
    not SOFTHSM.exists() or not all(map(shutil.which, ("softhsm2-util", "pkcs11-tool", "openssl"))),
    reason="needs softhsm2, opensc and openssl: the PKCS#11 example is not tried",
)
def test_the_pkcs11_example_signs_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "conf").write_text(
        f"directories.tokendir = {tmp_path / 'tokens'}\nobjectstore.backend = file\n"
    )
    monkeypatch.setenv("SOFTHSM2_CONF", str(tmp_path / "conf"))
    monkeypatch.setenv("PKCS11_PIN", "1234")
    for name in ("pkcs11-sign.sh", "softhsm.yaml"):
        shutil.copy(SIGNERS / name, tmp_path)
    _, _, module, label, key = strict_yaml((SIGNERS / "softhsm.yaml").read_bytes())["command"]
    tool = ("pkcs11-tool", "--module", module, "--token-label", label)
    for command in (
        ("softhsm2-util", "--init-token", "--free", "--label", label, "--so-pin", "123456",
         "--pin", "1234"),
        (*tool, "--login", "--pin", "env:PKCS11_PIN", "--keypairgen", "--key-type",
         "EC:prime256v1", "--id", key, "--label", "release"),
        (*tool, "--read-object", "--type", "pubkey", "--id", key, "--output-file", "release.der"),
        ("openssl", "pkey", "-pubin", "-inform", "der", "-in", "release.der", "-out",
         "release.pub"),
    ):  # fmt: skip
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    report = build(
        DIGITS / "digits.onnx",
        profile="server-cpu",
        output=tmp_path / "digits.aotc",
        key=tmp_path / "softhsm.yaml",
    )
    (trusted,) = load_public(tmp_path / "release.pub")
    assert (report.key_id, report.development_key) == (key_id(trusted.pem), False)
    assert verify(tmp_path / "digits.aotc", key=tmp_path / "release.pub").authentic
    monkeypatch.setenv("PKCS11_PIN", "4321")
    with pytest.raises(AotcError) as caught:
        load_signer(tmp_path / "softhsm.yaml").sign(b"message")
    assert caught.value.code == "AOTC-I033"
    assert "CKR_PIN_INCORRECT" in caught.value.found
