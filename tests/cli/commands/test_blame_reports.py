"""What a failing build tells of the nodes to blame: on a terminal, in JSON, and in every report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from command import Command, Outcome
from made_models import save
from planted_models import residual_network, with_outliers

from aotc.spec.codec import decode
from aotc.spec.run_report import RunReport

HOSTILE = 'it\'s "bad", #1: [a]\nb'
PROFILE = """\
schema: aotc.profile/1
name: small
precision: int8
quantization: {form: dynamic}
dims:
  n: 1..16
parity:
  random_shapes: 0
"""
FORMS = ("r.json", "r.md", "r.sarif", "r.xml", "r.html")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blamed")
    model = with_outliers(residual_network(4, 128, scale=0.07), "product 2")
    for node in model.graph.node:
        if node.name == "product 2":
            node.name = HOSTILE
    save(model, folder / "planted.onnx")
    (folder / "small.yaml").write_text(PROFILE)
    return folder


@pytest.fixture(scope="module")
def refused(place: Path) -> Outcome:
    words = [word for name in FORMS for word in ("--report", name)]
    return Command(place).plain(
        "build", "planted.onnx", "--profile", "small.yaml", "-o", "no.aotc", *words
    )


def test_the_terminal_shows_the_set_the_errors_and_the_line(refused: Outcome) -> None:
    assert (refused.status, refused.stdout) == (1, "")
    for text in ("AOTC-N001", "AOTC-N031", "keep_float32: [", "to keep in float32", "trial"):
        assert text in refused.stderr
    for column in ("largest error", "with nodes in float32"):
        assert column in refused.stderr


def test_every_report_has_the_nodes_and_json_the_record(refused: Outcome, place: Path) -> None:
    assert refused.status == 1
    report = decode(RunReport, json.loads((place / "r.json").read_text(encoding="utf-8")))
    (blamed,) = report.blamed
    assert blamed.keep_float32 == (HOSTILE,)
    assert blamed.outputs[0].output == "y"
    assert "AOTC-N031" in [each.code for each in report.refusals]
    for name in FORMS[1:]:
        assert "AOTC-N031" in (place / name).read_text(encoding="utf-8"), name


def test_the_line_goes_into_the_profile_as_it_is(refused: Outcome, place: Path) -> None:
    report = decode(RunReport, json.loads((place / "r.json").read_text(encoding="utf-8")))
    line = report.blamed[0].profile
    (fix,) = {each.fix for each in report.refusals if each.code in ("AOTC-N001", "AOTC-N031")}
    assert fix.endswith(line)
    assert yaml.safe_load(line) == {"keep_float32": [HOSTILE]}
    (place / "kept.yaml").write_text(f"{PROFILE}{line}\n")
    outcome = Command(place)("build", "planted.onnx", "--profile", "kept.yaml", "-o", "kept.aotc")
    assert outcome.status == 0, outcome.stderr


def test_trials_may_be_switched_off(place: Path) -> None:
    (place / "off.yaml").write_text(f"{PROFILE}blame: {{trials: 0}}\n")
    outcome = Command(place)("build", "planted.onnx", "--profile", "off.yaml", "-o", "no.aotc")
    assert outcome.status == 1
    assert "AOTC-N031" not in outcome.codes
