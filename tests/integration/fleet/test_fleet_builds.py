"""Fleets on this machine: what is built, what is not built again, and what stops no other cell."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command import Command, finish, wait_until
from made_models import linear, save
from process_tree import alive, descendants

import aotc
from aotc.cli.commands.fleet.build_fleet import status_of
from aotc.fleet.building import FleetRequest, plan_of
from aotc.spec.codec import decode
from aotc.spec.fleet import CellResult, FleetPlan, FleetReport
from aotc.trust.key_files import generate

_FLEET = """\
schema: aotc.fleet/1
name: shop
models: ['models/*.onnx']
profiles: [edge, nowhere.yaml]
exclude:
  - match: {model: '[!a]*', profile: nowhere}
rows:
  - match: {model: broken}
    settings: {required: false}
"""
# No machine of these tests has the libraries of this provider.
_NOWHERE = """\
schema: aotc.profile/1
name: nowhere
providers: [tensorrt]
"""
# What keeps its full disk to itself.
_FULL = 'mount -t tmpfs -o size=16k tmpfs "$0" || exit 99; exec "$@"'


def made_fleet(folder: Path, *names: str, text: str = _FLEET) -> Path:
    """A fleet's file with a model for each name, no two equal."""
    (folder / "models").mkdir(parents=True)
    for number, name in enumerate(names):
        save(linear(features=16 + number), folder / "models" / f"{name}.onnx")
    (folder / "nowhere.yaml").write_text(_NOWHERE)
    path = folder / "fleet.yaml"
    path.write_text(text)
    return path


def build(folder: Path, **changed: Any) -> FleetReport:
    """Build the fleet in a folder, which keeps its state there and signs with its key."""
    named = {"key": folder / "key.pem", "state": folder / "state", **changed}
    return aotc.build_fleet(folder / "fleet.yaml", **named)


def plan(folder: Path, **changed: Any) -> FleetPlan:
    """The plan of the same."""
    named = {"key": folder / "key.pem", "state": folder / "state", **changed}
    return plan_of(FleetRequest(folder / "fleet.yaml", **named))


def states(plan: FleetPlan) -> dict[str, tuple[str, str]]:
    """The state of each cell, and why."""
    return {each.cell.name: (each.state, each.reason) for each in plan.cells}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FleetReport, list[FleetPlan]]:
    """A fleet of two models and a file that is none, its report, and what was told before."""
    folder = tmp_path_factory.mktemp("fleet")
    made_fleet(folder, "a", "b")
    (folder / "models" / "broken.onnx").write_bytes(b"no model at all")
    generate(folder / "key.pem")
    told: list[FleetPlan] = []
    return folder, build(folder, planned=told.append), told


@pytest.fixture
def again(built: tuple[Path, FleetReport, Any], tmp_path: Path) -> Path:
    """The folder of the built fleet, to change something in it."""
    shutil.copytree(built[0], tmp_path / "again")
    return tmp_path / "again"


def test_cells_are_built_and_a_broken_one_stops_no_other(
    built: tuple[Path, FleetReport, list[FleetPlan]],
) -> None:
    folder, report, (told,) = built
    results = {each.cell.name: each for each in report.cells}
    assert {name: each.outcome for name, each in results.items()} == {
        "a/edge/host": "built",
        "a/nowhere/host": "impossible",
        "b/edge/host": "built",
        "broken/edge/host": "failed",
    }
    assert [each.code for each in results["broken/edge/host"].refusals] == ["AOTC-I002"]
    # Told before anything was built.
    assert states(told)["a/nowhere/host"] == (
        "impossible",
        results["a/nowhere/host"].refusals[0].what,
    )
    assert results["a/nowhere/host"].refusals[0].code == "AOTC-P004"
    for name in "ab":
        verified = aotc.verify(folder / f"artifacts/{name}/edge/host.aotc", key=folder / "key.pub")
        result = results[f"{name}/edge/host"]
        assert verified.artifact_id == result.artifact_id
        assert all(gate.status == "passed" for gate in result.gates)
        assert result.gates
        assert {"size", "latency"} <= {each.name for each in result.measurements}
        assert result.peak_memory_bytes
        assert result.worker == report.workers[0]


def test_what_may_fail_decides_no_status(built: tuple[Path, FleetReport, Any]) -> None:
    _, report, _ = built
    fine = [each for each in report.cells if each.cell.profile == "edge"]
    assert status_of(_with_cells(report, fine)) == 0
    assert status_of(report) == 1
    unbuilt = CellResult(cell=fine[0].cell, outcome="not-run")
    assert status_of(_with_cells(report, [*fine, unbuilt])) == 130


def _with_cells(report: FleetReport, cells: list[CellResult]) -> FleetReport:
    return FleetReport(fleet=report.fleet, executor=report.executor, cells=tuple(cells))


def test_ids_are_those_of_a_build_alone(
    built: tuple[Path, FleetReport, Any], tmp_path: Path
) -> None:
    folder, report, _ = built
    alone = aotc.build(
        folder / "models/a.onnx", output=tmp_path / "a.aotc", key=folder / "key.pem", cache=False
    )
    assert alone.artifact_id == report.cells[0].artifact_id


def test_nothing_is_built_again(again: Path) -> None:
    before = (again / "artifacts/a/edge/host.aotc").stat().st_ino
    told: list[FleetPlan] = []
    report = build(again, only=["*/edge/*"], planned=told.append)
    assert states(told[0]) == {
        "a/edge/host": ("unchanged", ""),
        "b/edge/host": ("unchanged", ""),
        "broken/edge/host": ("new", "failed last time: AOTC-I002"),
    }
    assert all(each.last_seconds for each in told[0].cells)
    assert [each.outcome for each in report.cells] == ["reused", "reused", "failed"]
    assert report.cells[0].gates
    assert (again / "artifacts/a/edge/host.aotc").stat().st_ino == before


def test_what_changed_is_built_again(again: Path) -> None:
    save(linear(features=3), again / "models" / "a.onnx")
    shutil.rmtree(again / "artifacts/b")
    found = states(plan(again, only=["[ab]/edge/*"]))
    # Another model's artifact is not replaced by a build of it either.
    assert found["a/edge/host"] == ("impossible", "the output exists and is of another model")
    assert found["b/edge/host"] == ("new", "the artifact is gone")
    found = states(plan(again, only=["[ab]/edge/*"], force=True))
    assert found["a/edge/host"] == ("new", "the model, the settings or the tools changed")


def test_another_key_signs_anew_only_where_it_may(again: Path) -> None:
    generate(again / "other.pem")
    asked = {"only": ["a/edge/*"], "key": again / "other.pem"}
    found = states(plan(again, **asked))
    assert found == {
        "a/edge/host": ("impossible", "the output exists and is signed by another key")
    }
    found = states(plan(again, **asked, force=True))
    assert found == {"a/edge/host": ("new", "another key signs")}


# What ends a run, and what fills a disk: of the command, as users call it.


def started(tmp_path: Path, *names: str) -> tuple[Command, Any, Path]:
    """A build of a fleet that is under way, with the folder of its state."""
    made_fleet(
        tmp_path / "fleet", *names, text="schema: aotc.fleet/1\nname: x\nmodels: ['models/*']\n"
    )
    command = Command(tmp_path, {"AOTC_CACHE": "off"}, anew=True)
    state = tmp_path / "state"
    running = command.start(
        "fleet", "build", "fleet/fleet.yaml", "--state", state, "--jobs", "1", "--json"
    )
    return command, running, state


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    command, running, state = started(tmp_path, "a", "b", "c")
    wait_until(lambda: state.is_dir() and [*state.glob("*.json")])
    below = descendants(running.pid)
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()
    wait_until(lambda: not alive(below))
    done = [decode(CellResult, _json(path)) for path in state.glob("*.json")]
    assert 0 < len(done) < 3
    places = {each.cell.name: tmp_path / each.cell.output for each in done}
    before = {name: place.stat().st_ino for name, place in places.items()}
    outcome = command("fleet", "build", "fleet/fleet.yaml", "--state", state)
    assert outcome.status == 0
    now = {each["cell"]["name"]: each for each in _named(outcome.document)}
    assert {name for name, each in now.items() if each["outcome"] == "reused"} == set(before)
    assert len(now) == 3
    assert {name: place.stat().st_ino for name, place in places.items()} == before
    assert command.leftovers() == []


@pytest.mark.slow
def test_an_interrupt_leaves_what_was_not_built(tmp_path: Path) -> None:
    _, running, state = started(tmp_path, "a", "b", "c")
    wait_until(lambda: state.is_dir() and [*state.glob("*.json")])
    below = descendants(running.pid)
    os.kill(running.pid, signal.SIGINT)
    outcome = finish(running)
    assert outcome.status == 130
    outcomes = [each["outcome"] for each in outcome.document["cells"]]
    assert "built" in outcomes
    assert "not-run" in outcomes
    wait_until(lambda: not alive(below))


def test_a_full_disk_is_told_of_the_cell_that_fills_it(tmp_path: Path) -> None:
    text = (
        "schema: aotc.fleet/1\nname: x\nmodels: ['models/*']\n"
        "rows: [{match: {model: a}, settings: {output: full/a.aotc}}]\n"
    )
    made_fleet(tmp_path / "fleet", "a", "b", text=text)
    full = tmp_path / "fleet" / "full"
    full.mkdir()
    prefix = ("unshare", "--mount", "--map-root-user", "sh", "-c", _FULL, str(full))
    probe = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("a disk of its own cannot be mounted here")
    outcome = Command(tmp_path)("fleet", "build", "fleet/fleet.yaml", prefix=prefix)
    assert outcome.status == 1
    found = {each["cell"]["name"]: each for each in _named(outcome.document)}
    assert found["a/edge/host"]["refusals"][0]["code"] == "AOTC-I018"
    assert found["b/edge/host"]["outcome"] == "built"


def test_cells_of_one_model_become_one_artifact(tmp_path: Path) -> None:
    text = (
        "schema: aotc.fleet/1\nname: x\nmodels: ['models/*']\n"
        "targets: [host, linux-x86-64]\nmerge: by-model\n"
    )
    made_fleet(tmp_path, "a", text=text)
    generate(tmp_path / "key.pem")
    (merged,) = build(tmp_path).merged
    assert merged.cells == ("a/edge/host", "a/edge/linux-x86-64")
    place = tmp_path / "artifacts/a/edge.aotc"
    assert aotc.verify(place, key=tmp_path / "key.pub").artifact_id == merged.artifact_id
    before = place.stat().st_ino
    assert build(tmp_path).merged == (merged,)
    assert place.stat().st_ino == before


def _json(path: Path) -> Any:
    import json

    return json.loads(path.read_text())


def _named(document: Any) -> list[Any]:
    for each in document["cells"]:
        cell = each["cell"]
        cell["name"] = f"{cell['model']}/{cell['profile']}/{cell['target']}"
    return list(document["cells"])
