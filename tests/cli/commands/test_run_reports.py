"""`--report` and `--format` of the real command: every breach of a real build, in every form."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import Command, Outcome
from junitparser import JUnitXml
from made_models import FEATURES, linear, save
from model_parts import model_of
from onnx import TensorProto, helper, numpy_helper
from third_party_models import MODELS, needs_models

from aotc.spec.codec import decode
from aotc.spec.run_report import RunReport

# No artifact is so small, and no process needs so little memory.
TIGHT = """\
schema: aotc.profile/1
name: tight
dims:
  batch: 1..4
budgets:
  peak_memory_bytes: 1000
  artifact_bytes: 10
"""
FORMS = ("r.json", "r.md", "r.xml", "r.sarif", "r.codequality.json")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, profiles, a key and an artifact."""
    folder = tmp_path_factory.mktemp("reported")
    save(linear(), folder / "linear.onnx")
    (folder / "tight.yaml").write_text(TIGHT)
    aotc = Command(folder)
    assert aotc("keygen", "-o", "ci.pem").status == 0
    words = ("--dim", "batch=1..4", "--key", "ci.pem", "-o", "good.aotc")
    assert aotc("build", "linear.onnx", *words).status == 0
    return folder


@pytest.fixture
def aotc(place: Path) -> Command:
    """The command in that folder, outside of any CI."""
    return Command(place)


def read(place: Path, name: str = "r.json") -> RunReport:
    return decode(RunReport, json.loads((place / name).read_text(encoding="utf-8")))


def reports(names: tuple[str, ...] = FORMS) -> list[str]:
    return [word for name in names for word in ("--report", name)]


def failing(aotc: Command, *words: str) -> Outcome:
    return aotc.plain("build", "linear.onnx", "--profile", "tight.yaml", "-o", "no.aotc", *words)


def test_all_breaches_of_a_build_are_told_in_the_order_of_the_profile(aotc: Command) -> None:
    outcome = failing(aotc, *reports())
    assert (outcome.status, outcome.stdout) == (1, "")
    assert not (aotc.folder / "no.aotc").exists()
    report = read(aotc.folder)
    assert (report.outcome, report.exit_status, report.command) == ("failed", 1, "build")
    told = [(each.code, str(each.place)) for each in report.refusals]
    assert told == [("AOTC-M002", "tight.yaml:6:3"), ("AOTC-M001", "tight.yaml:7:3")]
    assert [each.expected for each in report.refusals] == ["<= 1000 bytes", "<= 10 bytes"]
    # What was measured is kept, of the gates that are met as well.
    gates = {gate.name: gate for gate in report.gates}
    assert gates["parity.float32"].status == "passed"
    assert gates["fallback.policy"].status == "passed"
    assert gates["budgets.peak_memory_bytes"].status == "failed"
    memory = int(gates["budgets.peak_memory_bytes"].measured.split()[0])
    assert memory > 1_000_000
    figures = {figure.name: figure for figure in report.measurements}
    assert figures["peak memory"].value == memory
    assert figures["size"].value == int(gates["budgets.artifact_bytes"].measured.split()[0])
    assert set(report.stages) >= {"import", "analyze", "optimize", "partition", "lower", "prove"}
    assert (report.profile, report.model, report.artifact) == ("tight.yaml", "linear.onnx", "")
    # On a terminal, too.
    for text in ("tight.yaml:6:3", "tight.yaml:7:3", "AOTC-M001", "AOTC-M002"):
        assert text in outcome.stderr


@needs_models
def test_parity_and_costs_are_told_together(aotc: Command) -> None:
    """A real model whose optimized sums differ in the last bit, which this profile forbids."""
    profile = TIGHT.replace("dims:\n  batch: 1..4\n", "parity:\n  float32: {atol: 0, rtol: 0}\n")
    (aotc.folder / "exact.yaml").write_text(profile)
    model = MODELS / "xgboost_onnxmltools.onnx"
    words = ("build", model, "--profile", "exact.yaml", "-o", "no.aotc")
    assert aotc.plain(*words, "--report", "r.json").status == 1
    report = read(aotc.folder)
    told = [(each.code, str(each.place)) for each in report.refusals]
    assert told == [
        ("AOTC-N001", "exact.yaml:4:3"),
        ("AOTC-M002", "exact.yaml:6:3"),
        ("AOTC-M001", "exact.yaml:7:3"),
    ]
    assert report.refusals[0].found.startswith("error ")
    # Other forms were tried first, as ever.
    assert "AOTC-O003" in [finding.code for finding in report.findings]


@needs_models
def test_tests_have_the_names_that_they_have_where_all_passes(aotc: Command) -> None:
    """Answers, memory and size: each gate that fails, or that nothing is left for."""
    model = MODELS / "xgboost_onnxmltools.onnx"
    names, failed = {}, {}
    for limit, tolerance in ((10, 0), (10**10, 0.001)):
        (aotc.folder / "named.yaml").write_text(
            "schema: aotc.profile/1\nname: named\n"
            f"parity:\n  float32: {{atol: {tolerance}, rtol: {tolerance}}}\n"
            f"budgets: {{peak_memory_bytes: {limit}, artifact_bytes: {limit}}}\n"
        )
        words = ("build", model, "--profile", "named.yaml", "-o", "named.aotc", "--force")
        status = aotc.plain(*words, "--report", "r.xml").status
        (suite,) = JUnitXml.fromstring((aotc.folder / "r.xml").read_bytes())
        found = [(case.classname, case.name) for case in suite]
        assert len(found) == len(set(found))
        names[status] = set(found)
        failed[status] = {case.name: case.result[0].type for case in suite if case.is_failure}
    assert names[1] == names[0]
    assert failed == {
        0: {},
        1: {
            "parity.float32": "AOTC-N001",
            "budgets.peak_memory_bytes": "AOTC-M002",
            "budgets.artifact_bytes": "AOTC-M001",
        },
    }


def test_every_form_of_one_run_tells_the_same(aotc: Command) -> None:
    failing(aotc, *reports())
    codes = ["AOTC-M002", "AOTC-M001"]
    (suite,) = JUnitXml.fromstring((aotc.folder / "r.xml").read_bytes())
    assert [case.result[0].type for case in suite if case.result] == codes
    (run,) = json.loads((aotc.folder / "r.sarif").read_text())["runs"]
    errors = [result for result in run["results"] if result["level"] == "error"]
    assert [result["ruleId"] for result in errors] == codes
    regions = [each["locations"][0]["physicalLocation"]["region"] for each in errors]
    assert regions == [{"startLine": line, "startColumn": 3} for line in (6, 7)]
    issues = json.loads((aotc.folder / "r.codequality.json").read_text())
    assert [issue["check_name"] for issue in issues if issue["severity"] == "major"] == codes
    markdown = (aotc.folder / "r.md").read_text()
    assert markdown.index("AOTC-M002") < markdown.index("AOTC-M001")


def test_the_json_of_a_refusal_has_the_places(aotc: Command) -> None:
    document = aotc("build", "linear.onnx", "--profile", "tight.yaml", "-o", "no.aotc").document
    places = [error["place"] for error in document["errors"]]
    assert places == [{"file": "tight.yaml", "line": line, "column": 3} for line in (6, 7)]


def test_a_build_that_passes_has_a_report_and_so_has_one_from_the_cache(aotc: Command) -> None:
    words = ("build", "linear.onnx", "--dim", "batch=1..4", "--force", "-o", "again.aotc")
    first = aotc(*words, "--report", "first.json").document
    second = aotc(*words, "--report", "second.json").document
    assert (first["cached"], second["cached"]) == (True, True)
    anew = aotc(*words, "--no-cache", "--report", "anew.json").document
    assert not anew["cached"]
    made = [read(aotc.folder, f"{name}.json") for name in ("first", "second", "anew")]
    for report in made:
        assert (report.outcome, report.exit_status, report.refusals) == ("passed", 0, ())
        assert report.artifact_id == first["artifact_id"]
        assert len(report.model_sha256) == 64
    # The gates are the same; the time and the memory of another run are not.
    assert [gate.name for gate in made[0].gates] == [gate.name for gate in made[2].gates]
    assert made[0].gates[0].place == made[2].gates[0].place


def test_an_earlier_artifact_stands_beside_the_new_one(aotc: Command) -> None:
    folder = aotc.folder
    old = aotc("inspect", "good.aotc").document["artifact"]["artifact_id"]
    words = ("build", "linear.onnx", "-o", "new.aotc", "--force", *reports(("r.json", "r.md")))
    # Signed with another key than this user's: nobody vouches for it.
    assert aotc.plain(*words, "--beside", "good.aotc").status == 0
    found = read(folder)
    assert found.beside is not None
    assert (found.beside.artifact, found.beside.artifact_id) == ("good.aotc", old)
    assert found.beside.refused == "signed by nobody you trust"
    head = [line.split(" | ") for line in (folder / "r.md").read_text().splitlines()[2:8]]
    assert head[0] == ["| ", "this", "base", "change |"]
    assert [row[0] for row in head[2:]] == [
        "| `verdict`",
        "| `size`",
        "| `latency`",
        "| `largest error, output 'y'`",
    ]
    assert head[2][1:] == ["`passed`", "`UNVERIFIED: signed by nobody you trust`", " |"]
    # Whoever signs the new one vouches for what has the same signature.
    assert aotc.plain(*words, "--beside", "good.aotc", "--key", "ci.pem").status == 0
    verified = read(folder)
    assert verified.beside is not None
    assert (verified.beside.refused, verified.beside.artifact_id) == ("", old)
    assert {each.name for each in verified.beside.measurements} == {
        "size",
        "latency",
        "largest error",
    }
    # What was changed is told, judges nothing, and is shown where a gate failed, too.
    shutil.copytree(folder / "good.aotc", folder / "changed.aotc")
    (weights,) = (folder / "changed.aotc/payload").rglob("model.onnx")
    weights.write_bytes(weights.read_bytes() + b"x")
    assert failing(aotc, "--beside", "changed.aotc", "--key", "ci.pem", *reports()).status == 1
    changed = read(folder)
    assert changed.beside is not None
    assert changed.beside.refused == "changed since it was signed"
    assert {each.name for each in changed.measurements} >= {"size", "latency", "largest error"}
    # Of what cannot be read there are no figures.
    (folder / "none.aotc").mkdir()
    assert aotc.plain(*words, "--beside", "none.aotc").status == 0
    none = read(folder)
    assert none.beside is not None
    assert (none.beside.refused, none.beside.measurements) == ("not an artifact", ())


def test_against_shows_what_it_judges_by(aotc: Command) -> None:
    words = ("--against", "good.aotc", "--key", "ci.pem", "-o", "new.aotc", "--force")
    assert aotc.plain("build", "linear.onnx", *words, *reports()).status == 0
    report = read(aotc.folder)
    assert report.beside is not None
    assert (report.beside.artifact, report.beside.refused) == ("good.aotc", "")
    assert "answers" in {gate.name for gate in report.gates}


def test_what_cannot_stand_beside(aotc: Command) -> None:
    words = ("build", "linear.onnx", "-o", "new.aotc", "--force", "--beside")
    aotc(*words, "good.aotc").refused("AOTC-I027", 2)
    missing = aotc(*words, "missing.aotc", "--report", "r.md")
    missing.refused("AOTC-I001", 3)
    both = aotc(*words, "good.aotc", "--against", "good.aotc", "--report", "r.md")
    assert both.status == 2


def test_an_input_that_must_be_fixed_is_an_error_and_no_failed_gate(aotc: Command) -> None:
    (aotc.folder / "broken.onnx").write_bytes(b"no model")
    outcome = aotc.plain("build", "broken.onnx", *reports())
    assert outcome.status == 3
    report = read(aotc.folder)
    assert (report.outcome, report.exit_status) == ("error", 3)
    assert report.refusals
    (suite,) = JUnitXml.fromstring((aotc.folder / "r.xml").read_bytes())
    assert (suite.errors, suite.failures) == (len(report.refusals), 0)
    (run,) = json.loads((aotc.folder / "r.sarif").read_text())["runs"]
    assert run["invocations"][0] == {"executionSuccessful": False, "exitCode": 3}


def test_an_error_in_a_profile_has_its_line_and_column(aotc: Command) -> None:
    (aotc.folder / "bad.yaml").write_text(
        "schema: aotc.profile/1\nname: bad\nbudgets:\n  cpu_shares: 0.5\n  partitions: none\n"
    )
    document = aotc("build", "linear.onnx", "--profile", "bad.yaml", "--report", "r.json").document
    stated = [(error["code"], error["place"]["line"]) for error in document["errors"]]
    assert stated == [("AOTC-I022", 4), ("AOTC-I022", 5)]
    assert [str(each.place) for each in read(aotc.folder).refusals] == [
        "bad.yaml:4:3",
        "bad.yaml:5:3",
    ]
    (aotc.folder / "torn.yaml").write_text("schema: aotc.profile/1\nname: [\n")
    first = aotc("build", "linear.onnx", "--profile", "torn.yaml").refused("AOTC-I022", 3)
    assert first["place"]["file"] == "torn.yaml"
    assert first["place"]["line"] == 3


def test_an_error_in_a_file_that_a_profile_names_is_told_in_both(aotc: Command) -> None:
    (aotc.folder / "here.yaml").write_text("schema: aotc.target/1\nname: here\noss: linux\n")
    (aotc.folder / "names.yaml").write_text(
        "schema: aotc.profile/1\nname: names\ntarget: here.yaml\n"
    )
    words = ("build", "linear.onnx", "--profile", "names.yaml", "--report", "r.json")
    first = aotc(*words).refused("AOTC-I049", 3)
    assert first["place"] == {"file": "names.yaml", "line": 3, "column": 1}
    _, *inner = read(aotc.folder).refusals
    assert ("AOTC-I022", "here.yaml:3:1") in [(each.code, str(each.place)) for each in inner]
    # A target of the command line is not the profile's.
    outcome = aotc(*words, "--target", "here.yaml")
    assert outcome.codes[0] == "AOTC-I022"


def test_a_verification_is_reported_by_its_steps(aotc: Command) -> None:
    outcome = aotc.plain("verify", "good.aotc", "--key", "ci.pub", *reports())
    assert outcome.status == 0, outcome
    report = read(aotc.folder)
    assert (report.outcome, report.refusals) == ("passed", ())
    assert [gate.name for gate in report.gates][:3] == [
        "1 container and limits",
        "2 strict parse",
        "3 signature",
    ]
    shutil.copytree(aotc.folder / "good.aotc", aotc.folder / "torn.aotc", dirs_exist_ok=True)
    (aotc.folder / "torn.aotc" / "payload" / "aotc.json").write_text("{}")
    outcome = aotc.plain("verify", "torn.aotc", "--key", "ci.pub", *reports())
    assert outcome.status == 1
    report = read(aotc.folder)
    assert report.outcome == "failed"
    assert "AOTC-G005" in [each.code for each in report.refusals]
    assert {gate.status for gate in report.gates} == {"passed", "failed", "not-judged"}
    (suite,) = JUnitXml.fromstring((aotc.folder / "r.xml").read_bytes())
    assert suite.failures == len(report.refusals)


def test_a_benchmark_is_reported_by_its_figures(aotc: Command) -> None:
    words = ("bench", "good.aotc", "--against", "linear.onnx", "--runs", "2", "--key", "ci.pub")
    outcome = aotc(*words, *reports())
    assert outcome.status == 0, outcome
    report = read(aotc.folder)
    measured = {(figure.name, figure.subject): figure.value for figure in report.measurements}
    sides = {timing["name"]: timing for timing in outcome.document["timings"]}
    assert measured["median", "artifact"] == sides["artifact"]["median_seconds"]
    assert measured["latency", "artifact / model"] == outcome.document["latency_ratio"]
    assert report.outcome == "passed"


def test_checked_models_are_gates(aotc: Command) -> None:
    folder = aotc.folder / "models"
    folder.mkdir()
    save(linear(), folder / "good.onnx")
    (folder / "bad.onnx").write_bytes(b"nothing")
    outcome = aotc.plain("check-models", "models", *reports())
    assert outcome.status == 1
    report = read(aotc.folder)
    gates = {gate.subject: gate.status for gate in report.gates}
    assert gates == {"good": "passed", "bad": "failed"} or gates == {
        "good.onnx": "passed",
        "bad.onnx": "failed",
    }
    (breach,) = report.refusals
    assert breach.where.startswith("bad")
    assert report.outcome == "failed"


def test_every_breach_of_a_checked_model_is_told(aotc: Command) -> None:
    folder = aotc.folder / "large"
    folder.mkdir()
    save(linear(), folder / "large.onnx")
    outcome = aotc("check-models", "large", "--profile", "tight.yaml", *reports())
    assert outcome.status == 1
    (checked,) = outcome.document["models"]
    found = [checked["code"], *(each["code"] for each in checked["other_refusals"])]
    assert found == ["AOTC-M002", "AOTC-M001"]
    report = read(aotc.folder)
    assert [each.code for each in report.refusals] == found
    assert all(each.where.startswith("large") for each in report.refusals)


@pytest.mark.parametrize("name", ["-", "-.md", "-.sarif"])
def test_a_report_on_standard_output_is_all_there(aotc: Command, name: str) -> None:
    outcome = aotc.plain("verify", "good.aotc", "--key", "ci.pub", "--report", name)
    assert outcome.status == 0
    if name == "-.md":
        assert outcome.stdout.startswith("### ✅ `aotc verify` passed\n")
    else:
        document = json.loads(outcome.stdout)
        assert document.get("schema", document.get("version")) in ("aotc.report/1", "2.1.0")
    refused = aotc("verify", "good.aotc", "--key", "ci.pub", "--report", name)
    assert refused.refused("AOTC-I027", 2)["where"] == "--report -"


@pytest.mark.parametrize("name", ["r.txt", "report", "r.json.gz", "-.html", "-x"])
def test_an_unknown_suffix_is_refused_before_anything_is_done(aotc: Command, name: str) -> None:
    words = ("build", "linear.onnx", "-o", "never.aotc", f"--report={name}")
    first = aotc(*words).refused("AOTC-I048", 2)
    assert ".sarif" in first["expected"]
    assert not (aotc.folder / "never.aotc").exists()


def test_a_report_that_cannot_be_written(aotc: Command) -> None:
    """After a success it is exit status 3; a failed gate stays 1, and the loss is told."""
    good = ("verify", "good.aotc", "--key", "ci.pub", "--report", "no/such/folder/r.json")
    first = aotc(*good).refused("AOTC-I047", 3)
    assert first["where"] == "--report no/such/folder/r.json"
    built = ("build", "linear.onnx", "--dim", "batch=1..4", "--force", "-o", "made.aotc")
    outcome = aotc(*built, "--report", "no/r.md", "--report", "kept.json")
    outcome.refused("AOTC-I047", 3)
    assert (aotc.folder / "made.aotc").is_dir()
    assert read(aotc.folder, "kept.json").outcome == "passed"
    bad = failing(aotc, "--report", "no/r.md", "--json")
    assert bad.status == 1
    assert bad.codes == ["AOTC-M002", "AOTC-M001", "AOTC-I047"]
    refused = aotc.plain("verify", "good.aotc", "--report", "no/r.md")
    assert refused.status == 1
    assert "AOTC-I047" in refused.stderr
    assert not aotc.leftovers()


def test_annotations_come_by_default_in_github_actions(place: Path) -> None:
    actions = Command(place, {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(place)}, anew=True)
    outcome = failing(actions)
    commands = [line for line in outcome.stderr.splitlines() if line.startswith("::")]
    assert [line.partition("title=")[0] for line in commands[:2]] == [
        "::error file=tight.yaml,line=6,col=3,",
        "::error file=tight.yaml,line=7,col=3,",
    ]
    assert not [
        line for line in failing(actions, "--format", "text").stderr.splitlines() if "::e" in line
    ]
    elsewhere = failing(Command(place), "--format", "github")
    assert [line for line in elsewhere.stderr.splitlines() if line.startswith("::error")]
    outcome = failing(Command(place), "--format", "yaml")
    assert (outcome.status, "is not one of 'text', 'github'" in outcome.stderr) == (2, True)


EVIL = (
    "::error file=x::forged|<script>alert(1)</script>`@octocat\n::stop-commands::t\x1b[31m##[error]"
)


def hostile() -> onnx.ModelProto:
    """A product whose output has a name that would forge lines, cells and elements."""
    weight = np.eye(FEATURES, dtype=np.float32)
    shape = ["batch", FEATURES]
    return model_of(
        [helper.make_node("MatMul", ["x", "W"], [EVIL], name=EVIL)],
        inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        outputs=[helper.make_tensor_value_info(EVIL, TensorProto.FLOAT, shape)],
        initializers=[numpy_helper.from_array(weight, "W")],
    )


def test_a_hostile_name_of_a_real_model_forges_nothing(place: Path) -> None:
    save(hostile(), place / "hostile.onnx")
    aotc = Command(place, {"GITHUB_ACTIONS": "true"}, anew=True)
    words = ("build", "hostile.onnx", "--profile", "tight.yaml", "-o", "no.aotc")
    outcome = aotc.plain(*words, *reports())
    assert outcome.status == 1
    report: Any = read(place)
    assert any("forged" in gate.subject for gate in report.gates)
    commands = [
        line
        for line in (outcome.stdout + outcome.stderr).splitlines()
        if line.lstrip().startswith("::") or "##[" in line
    ]
    assert all(line.startswith(("::error file=tight.yaml", "::notice ")) for line in commands)
    for name in FORMS:
        text = (place / name).read_bytes().decode("utf-8")
        assert "\x1b" not in text
        assert "\n::" not in text
        assert "<script>" not in text or name != "r.xml"
    assert JUnitXml.fromstring((place / "r.xml").read_bytes())
