"""Reports never change what a run ends with, nor what it is about, and tell the same as its answer.

Each part runs the real command; its reader, its file names and its places are what users have.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from command import SCRIPT, Command
from made_models import linear, save, save_external

from aotc.base.records import replace
from aotc.spec.codec import decode
from aotc.spec.run_report import RunReport

# No artifact is so small.
TIGHT = "schema: aotc.profile/1\nname: tight\nbudgets: {artifact_bytes: 10}\n"
FORMS = ("r.json", "r.md", "r.xml", "r.sarif", "r.codequality.json")
# A name that is no UTF-8, as a text.
BYTES = os.fsdecode(b"tight-\xff.yaml")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a profile that nothing meets, a key and an artifact."""
    folder = tmp_path_factory.mktemp("kept")
    save(linear(), folder / "linear.onnx")
    for name in ("tight.yaml", BYTES):
        (folder / name).write_text(TIGHT)
    aotc = Command(folder)
    assert aotc("keygen", "-o", "ci.pem").status == 0
    assert aotc("build", "linear.onnx", "--key", "ci.pem", "-o", "good.aotc").status == 0
    return folder


@pytest.fixture
def aotc(place: Path) -> Command:
    """The command in that folder."""
    for name in FORMS:
        (place / name).unlink(missing_ok=True)
    return Command(place)


def read(aotc: Command, name: str = "r.json") -> RunReport:
    return decode(RunReport, json.loads((aotc.folder / name).read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", FORMS)
def test_a_profile_whose_name_is_no_utf8_is_refused_in_every_form(aotc: Command, name: str) -> None:
    words = ("build", "linear.onnx", "--profile", BYTES, "-o", "no.aotc", "--report", name)
    outcome = aotc(*words)
    assert (outcome.status, outcome.codes) == (2, ["AOTC-I027"])
    assert not (aotc.folder / "no.aotc").exists()


@pytest.mark.parametrize("profile", ["edge", "tight.yaml"])
def test_a_reader_that_has_gone_loses_its_own_report_alone(aotc: Command, profile: str) -> None:
    words = ("build", "linear.onnx", "--profile", profile, "-o", "gone.aotc", "--force")
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [str(SCRIPT), *words, "--report", "-", "--report", "r.json"],
            cwd=aotc.folder,
            env=aotc.environment(),
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(write_end)
    report = read(aotc)
    assert "Traceback" not in done.stderr
    if profile == "edge":
        assert (report.outcome, "error" in done.stderr) == ("passed", False)
    else:
        # The refusal is told all the same.
        assert (report.outcome, done.returncode) == ("failed", 1)
        assert "AOTC-M001" in done.stderr


def piped(aotc: Command, data: bytes) -> tuple[list[str], RunReport]:
    done = subprocess.run(
        [str(SCRIPT), "build", "-", "--report", "r.json", "--json"],
        cwd=aotc.folder,
        env=aotc.environment(),
        input=data,
        capture_output=True,
        check=False,
    )
    report = read(aotc)
    assert report.exit_status == done.returncode == 3
    return [error["code"] for error in json.loads(done.stdout)["errors"]], report


def test_the_report_of_standard_input_tells_what_the_answer_tells(
    aotc: Command, tmp_path: Path
) -> None:
    model, _ = save_external(tmp_path)
    codes, report = piped(aotc, model.read_bytes())
    assert codes == ["AOTC-I054"] == [breach.code for breach in report.refusals]
    assert "stdin" not in (aotc.folder / "r.json").read_text()
    codes, report = piped(aotc, b"")
    assert codes == ["AOTC-I053"] == [breach.code for breach in report.refusals]


@pytest.mark.parametrize(
    "words",
    [
        ("build", "linear.onnx", "--dim", "batch"),
        ("bench", "good.aotc", "--allow", "1.5"),
        ("check-models", ".", "--output", "good.aotc"),
    ],
)
def test_words_that_mean_nothing_are_reported_too(aotc: Command, words: tuple[str, ...]) -> None:
    outcome = aotc(*words, "--report", "r.json")
    assert outcome.status in (2, 3)
    report = read(aotc)
    assert [breach.code for breach in report.refusals] == outcome.codes
    assert report.exit_status == outcome.status


@pytest.mark.parametrize(
    "words",
    [
        ("build", "linear.onnx", "--key", "ci.pem", "-o", "new.aotc", "--report", "new.aotc/r.md"),
        ("build", "linear.onnx", "--report", "linear.aotc/payload/r.json"),
        ("build", "linear.onnx", "--force", "-o", "good.aotc", "--report", "./good.aotc/r.xml"),
        ("build", "linear.onnx", "-o", "new.json", "--report", "new.json"),
        ("build", "linear.onnx", "-o", "new.aotc", "--report", "good.aotc/attestations/r.json"),
        ("verify", "good.aotc", "--key", "ci.pub", "--report", "good.aotc/r.json"),
        ("bench", "good.aotc", "--key", "ci.pub", "--report", "good.aotc/payload/r.sarif"),
        ("bench", "good.aotc", "--history", "h.json", "--report", "h.json"),
        ("check-models", ".", "--output", "c.json", "--report", "c.json"),
    ],
)
def test_a_report_is_put_into_no_artifact(aotc: Command, words: tuple[str, ...]) -> None:
    before = sorted(aotc.folder.rglob("*"))
    aotc(*words).refused("AOTC-I027", 2)
    after = [path for path in sorted(aotc.folder.rglob("*")) if "home" not in path.parts]
    assert [path for path in before if "home" not in path.parts] == after
    assert aotc("verify", "good.aotc", "--key", "ci.pub").status == 0


def test_a_build_from_the_cache_tells_the_gates_of_the_first_one(aotc: Command) -> None:
    """They stand at the lines of its own profile, which may be another file."""
    text = "schema: aotc.profile/1\nname: {}\ndims: {{batch: 1..4}}\n"
    text = text.format("gates") + "budgets: {artifact_bytes: 1000000000, load_seconds: 60}\n"
    (aotc.folder / "first.yaml").write_text(text)
    (aotc.folder / "again.yaml").write_text("# The same, a line lower.\n" + text)
    made = []
    for name in ("first", "again"):
        words = ("build", "linear.onnx", "--profile", f"{name}.yaml", "-o", f"{name}.aotc")
        answer = aotc(*words, "--report", "r.json")
        assert answer.document["cached"] == (name == "again")
        made.append(read(aotc))
    first, again = made
    assert [replace(gate, place=None) for gate in first.gates] == [
        replace(gate, place=None) for gate in again.gates
    ]
    assert first.measurements == again.measurements
    for one, other in zip(first.gates, again.gates, strict=True):
        assert (one.place is None) == (other.place is None)
        if one.place and other.place:
            assert (one.place.file, other.place.file) == ("first.yaml", "again.yaml")
            assert other.place.line == one.place.line + 1


def test_no_colour_lets_a_name_command_the_runner(aotc: Command) -> None:
    runner = Command(aotc.folder, {"GITHUB_ACTIONS": "true", "FORCE_COLOR": "1"}, anew=True)
    name = "##[group]x.onnx"
    for words in ((), ("--json",), ("--report", "-"), ("--report", "-.md"), ("--report", "-.xml")):
        outcome = runner.plain("build", name, *words)
        assert outcome.status == 3
        lines = (outcome.stdout + outcome.stderr).splitlines()
        assert [line for line in lines if "group" in line]
        # A line that is a command of its own is not searched for another.
        assert not [line for line in lines if "##[" in line and not line.startswith("::error ")]
    # It is the same text all the same.
    assert runner("build", name).first["where"] == name


def test_a_model_that_is_not_built_is_the_file_of_its_breach(place: Path) -> None:
    folder = place / "models" / "deep"
    folder.mkdir(parents=True)
    (folder / "bad.onnx").write_bytes(b"nothing")
    runner = Command(place, {"GITHUB_WORKSPACE": str(place)}, anew=True)
    words = ("check-models", "models", "--format", "github", "--report", "r.codequality.json")
    outcome = runner.plain(*words)
    (line,) = [line for line in outcome.stderr.splitlines() if line.startswith("::error")]
    assert line.startswith("::error file=models/deep/bad.onnx,")
    (issue,) = json.loads((place / "r.codequality.json").read_text())
    assert issue["location"]["path"] == "models/deep/bad.onnx"
