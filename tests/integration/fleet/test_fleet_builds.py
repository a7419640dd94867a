"""Fleets on this machine: what is built, what is not built again, and what stops no other cell."""

from __future__ import annotations

import os
import platform
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
from aotc.fleet.joining import joined_reports
from aotc.pipeline.output import Output
from aotc.spec.codec import decode, encode
from aotc.spec.fleet import CellResult, FleetPlan, FleetReport
from aotc.spec.json import document
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


@pytest.mark.parametrize("damage", ["changed", "removed", "unsigned"])
def test_a_damaged_artifact_is_not_unchanged(again: Path, damage: str) -> None:
    artifact = again / "artifacts/a/edge/host.aotc"
    model = next((artifact / "payload").rglob("*.onnx"))
    if damage == "changed":
        model.write_bytes(model.read_bytes()[:-1] + b"x")
    elif damage == "removed":
        model.unlink()
    else:
        shutil.rmtree(artifact / "attestations")
    (state, reason) = states(plan(again, only=["a/edge/*"], force=True))["a/edge/host"]
    assert state == "new"
    assert reason.startswith("the artifact is damaged: AOTC-G")
    if damage == "changed":
        (result,) = build(again, only=["a/edge/*"]).cells
        assert result.artifact_id
        aotc.verify(artifact, key=again / "key.pub")


def test_what_cannot_be_proven_here_is_impossible_before_it_is_built(tmp_path: Path) -> None:
    text = (
        "schema: aotc.fleet/1\nname: x\nmodels: ['models/*']\ntargets: [linux-arm64]\n"
        "rows: [{match: {model: b}, settings: {allow_unproven: true}}]\n"
    )
    made_fleet(tmp_path, "a", "b", text=text)
    generate(tmp_path / "key.pem")
    one, other = plan(tmp_path).cells
    if platform.machine() != "x86_64":
        pytest.skip("the target is this machine's")
    assert (one.state, [each.code for each in one.refusals]) == ("impossible", ["AOTC-N002"])
    assert other.state == "new"


def test_a_share_without_a_cell_is_built_at_once(again: Path) -> None:
    reports = [build(again, shard=f"{n}/5") for n in (1, 2, 3, 4, 5)]
    assert [len(each.cells) for each in reports] == [1, 1, 1, 1, 0]
    assert status_of(reports[4]) == 0
    files = []
    for number, report in enumerate(reports):
        files.append(again / f"{number}.json")
        files[-1].write_text(document(encode(report)))
    assert len(joined_reports(files).cells) == 4


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


def test_a_model_that_changes_after_the_plan_is_built_again(tmp_path: Path) -> None:
    made_fleet(tmp_path, "a", text="schema: aotc.fleet/1\nname: x\nmodels: ['models/*']\n")
    generate(tmp_path / "key.pem")
    model = tmp_path / "models/a.onnx"
    before = model.read_bytes()
    build(tmp_path, planned=lambda _: save(linear(features=3), model))
    # What was planned is not what was built.
    model.write_bytes(before)
    assert states(plan(tmp_path, force=True))["a/edge/host"][0] == "new"


def test_a_copy_from_the_cache_says_nothing_of_the_time(
    again: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_CACHE", str(again / "cache"))
    outcomes, times = [], []
    for _ in range(2):
        shutil.rmtree(again / "artifacts/a")
        outcomes += [each.outcome for each in build(again, only=["a/edge/*"]).cells]
        times += [each.last_seconds for each in plan(again, only=["a/edge/*"]).cells]
    assert outcomes == ["built", "reused"]
    assert times[0] == times[1] > 0


_MERGING = """\
schema: aotc.fleet/1
name: x
models: ['models/*']
targets: [host, linux-x86-64, linux-x86-64-avx512]
merge: by-model
rows:
  - match: {target: linux-x86-64-avx512}
    settings: {required: false, needs: {resources: {elsewhere: 1}}}
"""


def test_what_is_merged_is_never_a_share(tmp_path: Path) -> None:
    made_fleet(tmp_path, "a", text=_MERGING)
    generate(tmp_path / "key.pem")
    place = tmp_path / "artifacts/a/edge.aotc"
    # Two of three cells, and one of those that are here.
    assert build(tmp_path, only=["*/host", "*/linux-x86-64"]).merged == ()
    assert not place.exists()
    (merged,) = build(tmp_path).merged
    assert (len(merged.cells), merged.refusals) == (2, ())
    # What stands there and was signed by others stays, and so does what is no artifact.
    aotc.build(tmp_path / "models/a.onnx", output=place, key=_other(tmp_path), force=True)
    report = build(tmp_path)
    assert [each.code for each in report.merged[0].refusals] == ["AOTC-I017"]
    assert status_of(report) == 1
    (forced,) = build(tmp_path, force=True).merged
    assert forced == merged
    # What is damaged is made again.
    (place / "payload" / "aotc.json").write_text("{}")
    shutil.rmtree(place / "attestations")
    assert build(tmp_path, force=True).merged == (merged,)
    aotc.verify(place, key=tmp_path / "key.pub")


def _other(folder: Path) -> Path:
    generate(folder / "other.pem")
    return folder / "other.pem"


def test_one_of_two_is_not_merged_where_the_other_need_not_be(tmp_path: Path) -> None:
    text = _MERGING.replace("targets: [host, linux-x86-64,", "targets: [host,")
    made_fleet(tmp_path, "a", text=text)
    generate(tmp_path / "key.pem")
    report = build(tmp_path)
    assert [each.outcome for each in report.cells] == ["built", "impossible"]
    assert report.merged == ()
    assert status_of(report) == 0


def test_what_another_run_delivered_meanwhile_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "schema: aotc.fleet/1\nname: x\nmodels: ['models/*']\noutput: '{model}.aotc.zip'\n"
    made_fleet(tmp_path, "a", text=text)
    generate(tmp_path / "key.pem")
    deliver = Output.deliver

    def late(output: Output, *given: Any) -> None:
        monkeypatch.setattr(Output, "deliver", deliver)
        aotc.build(
            tmp_path / "models/a.onnx", output=tmp_path / "a.aotc.zip", key=tmp_path / "key.pem"
        )
        deliver(output, *given)

    monkeypatch.setattr(Output, "deliver", late)
    (result,) = build(tmp_path).cells
    assert (result.outcome, result.refusals) == ("built", ())
    assert sorted(each.name for each in tmp_path.glob("*a.aotc*")) == ["a.aotc.zip"]


def _json(path: Path) -> Any:
    import json

    return json.loads(path.read_text())


def _named(document: Any) -> list[Any]:
    for each in document["cells"]:
        cell = each["cell"]
        cell["name"] = f"{cell['model']}/{cell['profile']}/{cell['target']}"
    return list(document["cells"])
