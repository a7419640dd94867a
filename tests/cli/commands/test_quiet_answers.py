"""`-q` of every command: the one answer, in one line or one line each, and errors."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from command import Command
from made_models import linear, save

from aotc.spec.profile_files import builtin_profiles, builtin_targets


@pytest.fixture(scope="module")
def aotc(tmp_path_factory: pytest.TempPathFactory) -> Command:
    command = Command(tmp_path_factory.mktemp("quiet"))
    save(linear(), command.folder / "model.onnx")
    assert command.plain("build", "model.onnx", "-q").status == 0
    assert command.plain("install", "model.aotc", "-q").status == 0
    return command


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "call",
    [
        "build model.onnx",
        "build model.onnx -o packed.zip",
        "pack model.aotc --force",
        "inspect model.aotc",
        "install model.aotc",
        "run model.aotc",
        "sign model.aotc --force",
        "attest model.aotc --approve --channel prod --expires 2099-01-31 --force",
        "store list",
    ],
)
def test_the_id_of_the_artifact(aotc: Command, call: str) -> None:
    done = aotc.plain(*call.split(), "-q", *(["--force"] if call.startswith("build") else ()))
    id_ = digest(aotc.folder / "model.aotc" / "payload" / "aotc.json")
    assert (done.status, done.stdout, done.stderr) == (0, f"{id_}\n", "")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("verify model.aotc", "optimal"),
        (
            "diff model.aotc model.aotc",
            "model.aotc -> model.aotc  nothing differs; nothing here was",
        ),
        ("debug parity model.aotc --model model.onnx", "within tolerance"),
        ("bench model.aotc --runs 5", r"\d+\.\d{9}"),
        ("inspect model.onnx", "[0-9a-f]{64}"),
        ("doctor", "aotc doctor  healthy"),
        ("keygen -o one.pem", "[0-9a-f]{64}"),
        ("explain g005 AOTC-G006", "AOTC-G005  digest mismatch\nAOTC-G006  file missing"),
        ("cache list", "[0-9a-f]{64}(\n[0-9a-f]{64})*"),
        ("store prune --older-than 9", "0"),
        ("profile list", "\n".join(builtin_profiles())),
        ("target list", "\n".join(("host", *builtin_targets()))),
        ("profile check mine.yaml", "mine.yaml: profile 'mine' is valid"),
    ],
)
def test_the_one_answer(aotc: Command, call: str, said: str) -> None:
    (aotc.folder / "mine.yaml").write_text("schema: aotc.profile/1\nname: mine\n")
    done = aotc.plain(*call.split(), "-q")
    assert (done.status, done.stderr) == (0, "")
    pattern = said if re.search(r"[\\\[]", said) else re.escape(said)
    assert re.fullmatch(rf"{pattern}[^\n]*\n", done.stdout), done.stdout


def test_a_no_is_told_in_full_on_standard_error(aotc: Command) -> None:
    words = ("verify", "model.aotc", "--target", "linux-arm64")
    done = aotc.plain(*words, "-q")
    assert (done.status, done.stdout) == (1, "incompatible\n")
    assert done.stderr.startswith("model.aotc  INCOMPATIBLE: authentic, but no variant runs")
    assert "portable  does not run  AOTC-C002 architecture differs" in done.stderr
    assert aotc("keygen", "-o", "other.pem").status == 0
    done = aotc.plain("verify", "model.aotc", "--key", "other.pub", "-q")
    assert (done.status, done.stdout) == (1, "refused\n")
    assert "AOTC-G002" in done.stderr


def test_an_error_is_an_error(aotc: Command) -> None:
    done = aotc.plain("verify", "missing.aotc", "-q")
    assert (done.status, done.stdout) == (3, "")
    assert done.stderr.startswith("error: AOTC-I001 ")


def test_a_document_stays_one(aotc: Command) -> None:
    assert aotc("verify", "model.aotc", "-q").document["verdict"] == "optimal"
