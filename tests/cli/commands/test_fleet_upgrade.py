"""`aotc fleet upgrade`: what it is told to compare with, its answer, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from command import Command, finish, wait_until
from made_models import linear, save
from model_parts import model_of
from onnx import TensorProto, helper, numpy_helper
from other_runtimes import changed_environment, installed_wheel, made_wheel

from aotc.host.probe import installed_versions
from aotc.spec.codec import decode
from aotc.spec.providers import RUNTIMES
from aotc.spec.upgrade import UpgradeReport

# Nothing is downloaded.
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
QUICK = ("--no-latency",)
FLEET = """\
schema: aotc.fleet/1
name: zoo
models: [models/*.onnx]
targets: [host, linux-x86-64]
exclude:
  - match: {model: l*, target: linux-x86-64}
rows:
  - match: {target: linux-x86-64}
    settings: {required: false}
"""
FAKE = """\
__version__ = "1.32.99"
def set_default_logger_severity(level): pass
def get_available_providers(): return ["TellurideExecutionProvider"]
"""


@pytest.fixture
def models(aotc: Command) -> Path:
    folder = aotc.folder / "models"
    folder.mkdir()
    save(linear(), folder / "linear.onnx")
    return folder


def offline(aotc: Command) -> Command:
    return Command(aotc.folder, OFFLINE)


def test_what_is_no_runtime(aotc: Command, models: Path) -> None:
    refused = aotc("fleet", "upgrade", models, "--to", "newest").refused("AOTC-I190", 3)
    assert refused["where"] == "newest"
    stated = aotc.folder / "requirements.txt"
    stated.write_text("numpy==2.4.6\n")
    refused = aotc("fleet", "upgrade", models, "--to", stated).refused("AOTC-I190", 3)
    assert refused["what"] == "the file of requirements names no ONNX Runtime"


@pytest.mark.parametrize("version", ["1.30.0", "9.9"])
def test_a_version_that_was_not_tried(aotc: Command, models: Path, version: str) -> None:
    """It is told before anything is downloaded; and forced, it is looked for."""
    refused = aotc("fleet", "upgrade", models, "--to", version).refused("AOTC-I194", 3)
    assert (refused["expected"], refused["found"]) == ("1.31 or 1.32", version)
    forced = offline(aotc)("fleet", "upgrade", models, "--to", version, "--force")
    assert f"onnxruntime=={version}" in forced.refused("AOTC-I191", 3)["found"]


def test_a_version_that_there_is_not(aotc: Command, models: Path) -> None:
    told = offline(aotc)("fleet", "upgrade", models, "--to", "1.32.999").refused("AOTC-I191", 3)
    assert "No matching distribution found for onnxruntime==1.32.999" in told["found"]


def test_wheels_that_are_none(aotc: Command, models: Path) -> None:
    """Something else, another package, another platform, and one without a provider for CPUs."""
    other = offline(aotc)
    text = aotc.folder / "onnxruntime-1.32.0-py3-none-any.whl"
    text.write_text("not a zip")
    told = other("fleet", "upgrade", models, "--to", text).refused("AOTC-I192", 3)
    assert told["what"] == "the file is not a wheel"
    package = made_wheel(aotc.folder, "telluride")
    told = other("fleet", "upgrade", models, "--to", package).refused("AOTC-I192", 3)
    assert (told["expected"], told["found"]) == ("onnxruntime", "telluride")
    platform = made_wheel(aotc.folder, tag="cp39-cp39-win_arm64")
    told = other("fleet", "upgrade", models, "--to", platform).refused("AOTC-I192", 3)
    assert told["what"] == "the wheel is for another platform"
    without = made_wheel(aotc.folder, code=FAKE)
    told = other("fleet", "upgrade", models, "--to", without).refused("AOTC-I193", 3)
    assert told["found"] == "ONNX Runtime 1.32.99 has TellurideExecutionProvider"


@pytest.mark.slow
def test_a_wheel_is_installed_once(aotc: Command, models: Path) -> None:
    """Of the version that is installed here: nothing differs."""
    (distribution,) = installed_versions(RUNTIMES)
    wheel = installed_wheel(aotc.folder, distribution)
    words = ("fleet", "upgrade", models, "--to", wheel, *QUICK)
    for reused in (False, True):
        outcome = offline(aotc)(*words)
        answer = decode(UpgradeReport, outcome.document)
        assert (outcome.status, answer.after.reused) == (0, reused)
        (installed,) = answer.after.installed
        assert (installed.name, installed.version) == (distribution, ort.__version__)
        assert len(installed.sha256) == 64
        (model,) = answer.models
        assert (model.outcome, model.answers.identical) == ("same", True)
        assert model.answers.earlier_artifact == ""


def save_layers(path: Path) -> None:
    """`y = relu(x @ W) @ V + b`, whose second product is the first value of width 3."""
    draw = np.random.default_rng(5).standard_normal
    weights = {"W": (16, 8), "V": (8, 3), "b": (3,)}
    save(
        model_of(
            [
                helper.make_node("MatMul", ["x", "W"], ["h"], name="wide"),
                helper.make_node("Relu", ["h"], ["r"], name="bend"),
                helper.make_node("MatMul", ["r", "V"], ["v"], name="narrow"),
                helper.make_node("Add", ["v", "b"], ["y"], name="shift"),
            ],
            inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
            outputs=[helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
            initializers=[
                numpy_helper.from_array(draw(shape).astype(np.float32), name)
                for name, shape in weights.items()
            ],
        ),
        path,
    )


def test_another_runtime_answers_otherwise_and_is_slower(aotc: Command, models: Path) -> None:
    """Which output, by how much, and which node is first; by how much slower; one is the same.

    They are cells of a fleet's file, whose rows count.
    """
    fleet = aotc.folder / "fleet.yaml"
    fleet.write_text(FLEET)
    save_layers(models / "layers.onnx")
    save(linear(features=5), models / "slow.onnx")
    other = changed_environment(
        aotc.folder / "other",
        # Two orders of magnitude slower, so that no noise hides it; others are, by a function call.
        "(__import__('time').sleep(0.002) or o) if o.shape[-1:] == (5,) "
        "else o * 1.01 if o.shape[-1:] == (3,) else o",
    )
    report = aotc.folder / "report.json"
    words = ("--to", other, "--seconds", "0.2", "--allow", "5", "--report", report)
    outcome = aotc("fleet", "upgrade", fleet, *words)
    answer = decode(UpgradeReport, outcome.document)
    assert outcome.status == 1
    found = {each.model: each for each in answer.models}
    excluded = [f"{name}/edge/linux-x86-64" for name in ("layers", "linear")]
    assert [each.path for each in answer.skipped] == excluded
    assert found["linear/edge/host"].answers.identical
    slow = found["slow/edge/host"]
    assert (slow.outcome, slow.answers.identical, slow.latency.pairs) == ("slower", True, 3)
    assert slow.latency.lower is not None
    assert slow.latency.lower > 5
    assert not found["slow/edge/linux-x86-64"].required
    assert [each.model for each in answer.worse()] == ["layers/edge/host", "slow/edge/host"]
    layers = found["layers/edge/host"]
    assert layers.outcome == "different-answers"
    (changed,) = layers.answers.original
    assert (changed.error.output, changed.error.passed) == ("y", False)
    assert layers.answers.blamed is not None
    assert (layers.answers.blamed.node, layers.answers.blamed.exact) == ("narrow", True)
    document = json.loads(report.read_text())
    gates = {each["subject"]: each for each in document["gates"]}
    assert (gates["slow/edge/host"]["status"], gates["layers/edge/host"]["status"]) == (
        "failed",
        "failed",
    )
    assert "output y: error " in gates["layers/edge/host"]["measured"]
    assert "first at MatMul narrow" in gates["layers/edge/host"]["measured"]
    codes = {each["where"]: each["code"] for each in document["refusals"]}
    assert (codes["layers/edge/host"], codes["slow/edge/host"]) == ("AOTC-N058", "AOTC-I195")


def test_an_artifact_that_is_built_and_does_not_answer_fails(aotc: Command, models: Path) -> None:
    """It crashes, or refuses some sizes, when it runs again; the one built before does so, too.

    Another one crashes as it is timed: nothing is known of its latency, which is told.
    """
    save(linear(features=5), models / "crash.onnx")
    save(linear(features=7), models / "late.onnx")
    change = (
        "__import__('os').abort() if o.shape[-1:] == (7,) and "
        "__import__('os').getcwd().endswith('after-0') else "
        "o if o.shape[-1:] == (7,) or not __import__('os').getcwd().endswith('-again') else "
        "__import__('os').abort() if o.shape[-1:] == (5,) else "
        "o if o.shape[0] <= 1 else (_ for _ in ()).throw(RuntimeError('no'))"
    )
    report = aotc.folder / "report.json"
    other = changed_environment(aotc.folder / "other", change)
    timing = ("--seconds", "0.1")
    outcome = aotc("fleet", "upgrade", models, "--to", other, *timing, "--report", report)
    answer = decode(UpgradeReport, outcome.document)
    assert outcome.status == 1
    found = {each.model: each for each in answer.models}
    assert [each.outcome for each in answer.models] == ["fails", "same", "fails"]
    for name, code in (("crash.onnx", "AOTC-I013"), ("linear.onnx", "AOTC-R005")):
        refusal = found[name].after.refusal
        assert refusal is not None
        assert (refusal.code, code in found[name].answers.earlier_artifact) == (code, True)
    gates = {each["subject"]: each["status"] for each in json.loads(report.read_text())["gates"]}
    assert gates == {"crash.onnx": "failed", "late.onnx": "not-judged", "linear.onnx": "failed"}
    assert "AOTC-I013" in found["late.onnx"].answers.not_compared[0]


# Its parts are tried by quick tests: interrupts wherever they come, and what is kept of a model.
@pytest.mark.slow
def test_what_was_finished_is_not_done_again(aotc: Command, models: Path) -> None:
    """The second model takes for ever in the other environment, and is taken away later."""
    save(linear(features=7), models / "slow.onnx")
    change = "__import__('time').sleep(600 if o.shape[-1:] == (7,) else 0) or o"
    other = changed_environment(aotc.folder / "other", change)
    words = ("fleet", "upgrade", models, "--to", other, *QUICK)
    running = aotc.start(*words, "--json")
    upgrades = aotc.folder / "home" / ".local" / "state" / "aotc" / "upgrades"
    wait_until(lambda: any(upgrades.glob("*/*.json")))
    os.kill(running.pid, signal.SIGINT)
    outcome = finish(running)
    answer = decode(UpgradeReport, outcome.document)
    assert (outcome.status, answer.unchecked) == (130, ("slow.onnx",))
    (models / "slow.onnx").unlink()
    again = aotc(*words)
    answer = decode(UpgradeReport, again.document)
    assert (again.status, answer.resumed, len(answer.models)) == (0, 1, 1)
    assert not any(upgrades.glob("*"))
