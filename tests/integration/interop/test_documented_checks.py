"""The guide's commands for checking artifacts with other tools, run exactly as documented."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from built_artifact import BuiltArtifact
from file_bytes import flip_bit
from sigstore_js import ROOT, install

from aotc.trust import key_files

GUIDE = (ROOT / "docs" / "guides" / "attestations.md").read_text(encoding="utf-8")
SECTION = GUIDE.partition("\n## With other tools\n")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)


@pytest.fixture
def place(digits: BuiltArtifact, tmp_path: Path) -> Path:
    """A folder with what the commands name."""
    shutil.copytree(digits.path, tmp_path / "NAME.aotc")
    shutil.copy(digits.public_key, tmp_path / "release.pub")
    (tmp_path / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    for name in ("second", "third"):
        key_files.generate(tmp_path / f"{name}.pem")
    return tmp_path


def run(block: str, place: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    folders = (str(Path(sys.executable).parent), *map(str, path), os.environ["PATH"])
    return subprocess.run(
        ["sh", "-eu", "-c", block],
        cwd=place,
        env={**os.environ, "PATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def block_of(word: str) -> str:
    (found,) = [block for block in BLOCKS if word in block]
    return str(found)


def spoil(place: Path) -> None:
    """Flip one bit of a file of the payload."""
    file = sorted((place / "NAME.aotc" / "payload" / "model").glob("*/model.onnx"))[0]
    flip_bit(file)


def test_there_is_a_command_for_each_tool() -> None:
    words = ("model_signing verify", "verify.sh", "verify.mjs", "verify.py", "model_signing sign")
    assert len(BLOCKS) == len(words)
    for word in words:
        assert block_of(word)


@pytest.mark.parametrize("word", ["model_signing verify", "model_signing sign", "verify.py"])
def test_commands_in_python(word: str, place: Path) -> None:
    done = run(block_of(word), place)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(
    not all(map(shutil.which, ("openssl", "jq", "sha256sum"))),
    reason="needs openssl, jq and sha256sum: the example in sh is not tried",
)
def test_the_example_for_openssl(place: Path) -> None:
    block = block_of("verify.sh")
    done = run(block, place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Verified OK\n" in done.stdout
    extra = place / "NAME.aotc" / "payload" / "model" / ".extra"
    extra.write_bytes(b"")
    assert run(block, place).returncode != 0
    extra.unlink()
    extra.symlink_to("elsewhere")
    assert run(block, place).returncode != 0
    extra.unlink()
    file = place / "NAME.aotc" / "payload" / "aotc.json"
    file.rename(place / "aotc.json")
    file.symlink_to(place / "aotc.json")
    done = run(block, place)
    assert (done.returncode, done.stderr) == (1, "not a plain file is among them\n")
    (place / "aotc.json").rename(file)
    assert run(block, place).returncode == 0
    _, other = key_files.generate(place / "other.pem")
    assert run(block.replace("release.pub", other.name), place).returncode != 0
    spoil(place)
    assert run(block, place).returncode != 0
    done = run("sh examples/verifiers/verify.sh NAME.aotc", place)
    assert done.returncode == 2
    assert done.stderr == "usage: examples/verifiers/verify.sh ARTIFACT PUBLIC-KEY\n"


def test_the_example_for_node(place: Path) -> None:
    js = install(place)
    done = run(block_of("verify.mjs"), place, js.node.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": verified ") == 4
