"""The signature is an OpenSSF Model Signing one: the `model_signing` command line verifies it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from built_artifact import BuiltArtifact
from file_bytes import flip_bit

from aotc.trust import key_files


def verify(artifact: BuiltArtifact, payload: Path, key: Path) -> subprocess.CompletedProcess[str]:
    """Verify all files of `payload` with the artifact's signature."""
    command = Path(sys.executable).with_name("model_signing")
    return subprocess.run(
        [
            str(command),
            "verify",
            "key",
            "--signature",
            str(artifact.signature),
            "--public_key",
            str(key),
            "--no-ignore-git-paths",
            str(payload),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.fixture
def altered(digits: BuiltArtifact, tmp_path: Path) -> Path:
    """A copy of the payload, to be altered."""
    return Path(shutil.copytree(digits.payload, tmp_path / "payload"))


def test_the_artifact_is_accepted(digits: BuiltArtifact) -> None:
    result = verify(digits, digits.payload, digits.public_key)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Verification succeeded" in result.stdout + result.stderr


@pytest.mark.parametrize(
    "pattern", ["aotc.json", "manifest.json", "model/*/model.onnx", "shared_assets/*/*"]
)
def test_one_flipped_bit_is_refused(digits: BuiltArtifact, altered: Path, pattern: str) -> None:
    file = sorted(altered.glob(pattern))[0]
    flip_bit(file)
    result = verify(digits, altered, digits.public_key)
    assert result.returncode == 1
    assert "Verification failed" in result.stdout + result.stderr
    assert file.name in result.stdout + result.stderr


def test_an_extra_file_is_refused(digits: BuiltArtifact, altered: Path) -> None:
    (altered / ".gitignore").write_text("extra\n", encoding="utf-8")
    result = verify(digits, altered, digits.public_key)
    assert result.returncode == 1
    assert "Verification failed" in result.stdout + result.stderr


def test_another_key_is_refused(digits: BuiltArtifact, tmp_path: Path) -> None:
    _, other = key_files.generate(tmp_path / "other.pem")
    result = verify(digits, digits.payload, other)
    assert result.returncode == 1
    assert "Verification failed" in result.stdout + result.stderr
