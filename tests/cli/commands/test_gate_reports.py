"""Gates of outputs and of a task on the command line: exit status, every breach, reports."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command import Command
from junitparser import JUnitXml
from made_models import linear, save
from onnx import numpy_helper

from aotc.spec.codec import decode
from aotc.spec.run_report import RunReport

# No sum of float32 is as close to one of float64, and no accuracy rises by as much.
GATED = """\
schema: aotc.profile/1
name: gated
budgets:
  artifact_bytes: 10
gates:
  against: float64
  outputs:
    y:
      min_sqnr_db: 300
      max_abs: 1.0e-30
      min_agreement: 0.5
  task:
    data: set.npz
    metric: falling:falling
"""
# The original is judged first: each later call is worse.
FALLING = """\
from pathlib import Path

COUNT = Path(__file__).with_name("count.txt")

def falling(output, labels):
    calls = int(COUNT.read_text()) if COUNT.exists() else 0
    COUNT.write_text(str(calls + 1))
    return 1 - calls / 4
"""
FORMS = ("r.json", "r.md", "r.xml", "r.sarif", "r.html", "r.codequality.json")


@pytest.fixture
def aotc(tmp_path: Path) -> Command:
    """The command in a folder with a model, a profile, a labelled set and a function."""
    save(linear(), tmp_path / "linear.onnx")
    (tmp_path / "gated.yaml").write_text(GATED)
    (tmp_path / "falling.py").write_text(FALLING)
    x = np.random.default_rng(2).normal(size=(4, 16)).astype(np.float32)
    (weight,) = linear().graph.initializer
    labels = (x @ numpy_helper.to_array(weight)).argmax(axis=1)
    np.savez(tmp_path / "set.npz", x=x, label=labels)
    return Command(tmp_path)


def test_all_breaches_are_told_at_once_and_what_was_measured_is_kept(aotc: Command) -> None:
    words = [word for form in FORMS for word in ("--report", form)]
    profile = ("--profile", "gated.yaml", "--no-cache", "-o", "no.aotc")
    outcome = aotc.plain("build", "linear.onnx", *profile, *words)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert not (aotc.folder / "no.aotc").exists()
    report = decode(RunReport, json.loads((aotc.folder / "r.json").read_text()))
    assert (report.outcome, report.exit_status) == ("failed", 1)
    assert [(each.code, str(each.place)) for each in report.refusals] == [
        ("AOTC-M001", "gated.yaml:4:3"),
        ("AOTC-N020", "gated.yaml:9:7"),
        ("AOTC-N020", "gated.yaml:10:7"),
        ("AOTC-N024", "gated.yaml:12:3"),
    ]
    gates = {gate.name: gate for gate in report.gates}
    assert gates["gates.outputs.y.min_agreement"].status == "passed"
    assert gates["gates.outputs.y.min_sqnr_db"].measured.endswith(" dB")
    assert gates["gates.task.max_drop"].status == "failed"
    figures = {figure.name: figure for figure in report.measurements}
    assert 100 < figures["SQNR"].value < 300
    assert figures["SQNR"].unit == "dB"
    assert figures["falling:falling of the original"].value == 1
    assert figures["falling:falling"].value < 1
    noticed = {finding.code: finding for finding in report.findings}
    assert "SQNR >= 300 dB, noise " in noticed["AOTC-N023"].what
    for form in ("r.md", "r.html"):
        text = (aotc.folder / form).read_text()
        for word in ("SQNR", "AOTC-N020", "AOTC-N024", "gates.task"):
            assert word in text, (form, word)
    codes = {"AOTC-M001", "AOTC-N020", "AOTC-N024"}
    (run,) = json.loads((aotc.folder / "r.sarif").read_text())["runs"]
    errors = [result["ruleId"] for result in run["results"] if result["level"] == "error"]
    assert set(errors) == codes
    (suite,) = JUnitXml.fromstring((aotc.folder / "r.xml").read_bytes())
    assert {case.result[0].type for case in suite if case.result} >= codes
    issues = json.loads((aotc.folder / "r.codequality.json").read_text())
    assert codes <= {issue["check_name"] for issue in issues}


def test_what_passes_is_shown_and_a_cached_build_tells_the_same(aotc: Command) -> None:
    profile = aotc.folder / "good.yaml"
    profile.write_text(
        "schema: aotc.profile/1\nname: good\ngates:\n"
        "  outputs:\n    y: {min_sqnr_db: 60, min_agreement: 0.5}\n"
        "  task: {data: set.npz, max_drop: 1}\n"
    )
    words = ("build", "linear.onnx", "--profile", "good.yaml", "--force", "-o", "good.aotc")
    reports = []
    for name in ("first.json", "second.json"):
        outcome = aotc.plain(*words, "--report", name)
        assert outcome.status == 0, outcome
        reports.append(decode(RunReport, json.loads((aotc.folder / name).read_text())))
    first, second = reports
    assert [gate.name for gate in first.gates] == [
        "parity.float32",
        "proof",
        "fallback.policy",
        "gates.outputs.y.min_sqnr_db",
        "gates.outputs.y.min_agreement",
        "gates.task.max_drop",
    ]
    assert first.gates == second.gates
    shown = aotc.plain("inspect", "good.aotc").stdout
    assert "accuracy" in shown
    assert "agreement" in shown
    page = aotc.folder / "page.html"
    assert aotc.plain("inspect", "good.aotc", "--html", page).status == 0
    assert "accuracy of 4 samples" in page.read_text()


def test_a_changed_set_is_another_build(aotc: Command) -> None:
    profile = aotc.folder / "good.yaml"
    profile.write_text(
        "schema: aotc.profile/1\nname: good\ngates:\n  task: {data: set.npz, max_drop: 1}\n"
    )
    words = ("build", "linear.onnx", "--profile", "good.yaml", "--force", "-o", "good.aotc")
    assert not aotc(*words).document["cached"]
    assert aotc(*words).document["cached"]
    x = np.zeros((4, 16), np.float32)
    np.savez(aotc.folder / "set.npz", x=x, label=np.zeros(4, np.int64))
    assert not aotc(*words).document["cached"]


def test_a_configuration_that_nobody_named_runs_no_function(aotc: Command) -> None:
    (aotc.folder / "aotc.yaml").write_text("profile: gated.yaml\n")
    reason = aotc("build", "linear.onnx").refused("AOTC-I052", 3)
    text = (
        "the configuration in the working directory must "
        "not set a profile whose task runs a function"
    )
    assert reason["what"] == text
    assert not (aotc.folder / "count.txt").exists()
