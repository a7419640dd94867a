"""`aotc fleet build` as users call it: the plan, the answer, reports, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from command import Command
from made_models import linear, save

from aotc.spec.codec import decode
from aotc.spec.fleet import FleetPlan, FleetReport
from aotc.spec.run_report import RunReport

_FLEET = """\
schema: aotc.fleet/1
name: shop
models: ['models/*.onnx']
rows:
  - match: {model: asks}
    settings: {needs: {resources: {xeon: 1}}, required: false}
"""


@pytest.fixture(scope="module")
def aotc(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """A fleet of a model, one that asks for a machine that is not here, and a broken one."""
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "models").mkdir()
    for name in ("asks", "good"):
        save(linear(), folder / "models" / f"{name}.onnx")
    (folder / "models" / "broken.onnx").write_bytes(b"no model")
    (folder / "fleet.yaml").write_text(_FLEET)
    return Command(folder)


def test_a_plan_builds_nothing(aotc: Command) -> None:
    outcome = aotc("fleet", "build", "fleet.yaml", "--plan")
    assert outcome.status == 0
    plan = decode(FleetPlan, outcome.document)
    assert {each.cell.model: each.state for each in plan.cells} == {
        "asks": "impossible",
        "broken": "new",
        "good": "new",
    }
    assert plan.executor == "local"
    assert all(each.key for each in plan.cells if each.cell.model == "good")
    assert not (aotc.folder / "artifacts").exists()
    assert aotc.leftovers() == []


def test_every_report_tells_of_every_cell(aotc: Command) -> None:
    files = [f"all.{suffix}" for suffix in ("json", "md", "xml", "html")]
    words = [word for file in files for word in ("--report", file)]
    outcome = aotc("fleet", "build", "fleet.yaml", "--state", "state", *words)
    assert outcome.status == 1
    report = decode(FleetReport, outcome.document)
    assert {each.cell.model: each.outcome for each in report.cells} == {
        "asks": "impossible",
        "broken": "failed",
        "good": "built",
    }
    run = decode(RunReport, json.loads((aotc.folder / "all.json").read_text()))
    assert (run.command, run.outcome, run.exit_status) == ("fleet build", "failed", 1)
    assert "AOTC-I002" in {each.code for each in run.refusals}
    for file in files:
        text = (aotc.folder / file).read_text()
        assert all(name in text for name in ("asks", "broken", "good")), file
    cases = ElementTree.fromstring((aotc.folder / "all.xml").read_text()).iter("testcase")
    assert len([*cases]) >= 3
    assert aotc.leftovers() == []


def test_files_are_found_from_every_folder_and_by_what_they_hold(tmp_path: Path) -> None:
    folder = tmp_path / "a fleet"
    folder.mkdir()
    save(linear(), folder / "m.onnx")
    (folder / "fleet.yaml").write_text(
        "schema: aotc.fleet/1\nname: x\ntargets: [here.yaml]\nprofiles: [quick.yaml]\n"
        "models: [{path: m.onnx, fixtures: inputs.npz, calibration: samples.npz}]\n"
    )
    (folder / "quick.yaml").write_text("schema: aotc.profile/1\nname: quick\nprecision: int8\n")
    samples = np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32)
    np.savez(folder / "samples.npz", x=samples)
    np.savez(folder / "inputs.npz", x=samples[:2])
    # Paths are relative to the folder that the command runs in.
    aotc = Command(tmp_path)
    assert aotc("target", "probe", "a fleet/here.yaml").status == 0
    called = ("fleet", "build", "a fleet/fleet.yaml")
    assert aotc(*called).status == 0

    def state() -> tuple[str, str]:
        (planned,) = decode(FleetPlan, aotc(*called, "--plan").document).cells
        return planned.state, planned.reason

    assert state() == ("unchanged", "")
    changed = ("new", "the model, the settings or the tools changed")
    for name, array in (("inputs", samples[2:4]), ("samples", samples[:32])):
        before = (folder / f"{name}.npz").read_bytes()
        np.savez(folder / f"{name}.npz", x=array)
        assert state() == changed, name
        (folder / f"{name}.npz").write_bytes(before)
    assert state() == ("unchanged", "")


def test_what_is_impossible_is_told_before_anything_is_built(aotc: Command) -> None:
    outcome = aotc.plain("fleet", "build", "fleet.yaml", "--only", "asks/*")
    assert outcome.status == 0
    told = "asks/edge/host: impossible here: AOTC-I164 the worker has too little of what the cell"
    assert told in outcome.stderr


def test_what_is_wrong_with_the_file_is_told_by_line(aotc: Command) -> None:
    wrong = aotc.folder / "wrong.yaml"
    wrong.write_text("schema: aotc.fleet/1\nname: shop\nmodels: [none.onnx]\nprofiles: [egde]\n")
    outcome = aotc("fleet", "build", "wrong.yaml")
    assert outcome.status == 3
    places = [(each["code"], each["place"]["line"]) for each in outcome.document["errors"]]
    assert places == [("AOTC-I161", 3), ("AOTC-I162", 4)]


@pytest.mark.parametrize(
    "words",
    [
        ("--plan", "--report", "plan.json"),
        ("--on", "nowhere"),
        ("--shard", "3/2"),
        ("--jobs", "0"),
    ],
)
def test_calls_that_cannot_be(aotc: Command, words: tuple[str, ...]) -> None:
    aotc("fleet", "build", "fleet.yaml", *words).refused("AOTC-I027", 2)
    assert not Path(aotc.folder / "plan.json").exists()
