"""`aotc diff` of models: two files, and an artifact with the file that it was built from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import Command
from jsonschema import Draft202012Validator
from made_models import linear
from onnx import TensorProto, helper, numpy_helper
from repository import ROOT

from aotc.base.text import size
from aotc.spec.diff_report import AREAS

SCHEMA = json.loads((ROOT / "manifests" / "diff.schema.json").read_text("utf-8"))
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
# What files of models state.
COMPARED = {"source", "shapes", "answers", "size", "weights"}


def weights_of(model: onnx.ModelProto, name: str) -> onnx.TensorProto:
    (found,) = (tensor for tensor in model.graph.initializer if tensor.name == name)
    return found


def other_weight() -> onnx.ModelProto:
    """The digits with another number in the first kernel."""
    model = onnx.load(DIGITS)
    kernel = weights_of(model, "conv1.weight")
    numbers = numpy_helper.to_array(kernel).copy()
    numbers.flat[0] += 0.5
    kernel.CopyFrom(numpy_helper.from_array(numbers, kernel.name))
    return model


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models, and an artifact that this user's development key signed."""
    folder = tmp_path_factory.mktemp("models")
    model = onnx.load(DIGITS)
    onnx.save(model, folder / "a.onnx")
    onnx.save(other_weight(), folder / "b.onnx")
    onnx.save(
        model,
        folder / "apart.onnx",
        save_as_external_data=True,
        location="apart.bin",
        size_threshold=0,
    )
    onnx.save(linear(), folder / "linear.onnx")
    built = Command(folder)("build", "a.onnx", "-o", "a.aotc", "--profile", "server-cpu")
    assert built.status == 0, built
    return folder


@pytest.fixture
def aotc(place: Path) -> Command:
    return Command(place)


def compared(aotc: Command, *words: str, status: int = 0) -> dict[str, Any]:
    done = aotc("diff", *words)
    assert (done.status, done.stderr) == (status, ""), done
    Draft202012Validator(SCHEMA).validate(done.document)
    return done.document


def statuses(said: dict[str, Any]) -> dict[str, str]:
    return {area["area"]: area["status"] for area in said["areas"]}


def area(said: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (each for each in said["areas"] if each["area"] == name)
    return dict(found)


def test_two_models(aotc: Command) -> None:
    said = compared(aotc, "a.onnx", "b.onnx")
    found = statuses(said)
    assert {name for name, status in found.items() if status == "changed"} == {
        *("source", "answers", "weights")
    }
    assert [name for name, status in found.items() if status == "same"] == ["shapes", "size"]
    unknown = {name for name, status in found.items() if status == "not-compared"}
    assert unknown == set(AREAS) - COMPARED
    assert area(said, "trust")["reason"] == "A and B are models"
    assert (said["a"]["kind"], said["a"]["artifact_id"], said["built_from"]) == ("model", "", None)
    assert [change["what"] for change in area(said, "source")["changes"]] == ["source.sha256"]
    (weights,) = said["weights"]
    (tensor,) = weights["changed"]
    assert (tensor["a"], tensor["b"], tensor["max_abs"]) == ("conv1.weight", "conv1.weight", 0.5)
    # Both were run, on inputs that were made: it is said, and at which sizes.
    assert said["answers"]["how"] == "ran"
    assert said["answers"]["reason"] == "neither has a fixture, so inputs were made"
    calls = [call["fixture"] for call in said["answers"]["calls"]]
    assert calls == [f"made batch={number}" for number in (1, 2, 8, 32)]


def test_what_people_read_of_two_models(aotc: Command) -> None:
    lines = aotc.plain("diff", "a.onnx", "b.onnx").stdout.splitlines()
    assert lines[0] == "a.onnx -> b.onnx  3 of 16 areas differ; nothing here was verified"
    bytes_ = size(DIGITS.stat().st_size)
    assert lines[2].startswith(f"  A  a, a model, {bytes_}, sha256 ")
    text = " ".join(" ".join(lines).split())
    assert "answers both were run on 4 inputs neither has a fixture, so inputs were made" in text


def test_equal_models_in_other_files(aotc: Command) -> None:
    said = compared(aotc, "a.onnx", "apart.onnx", "--fail-on", "weights,answers,shapes")
    assert statuses(said)["weights"] == "same"
    assert said["failed"] == []
    # The weights of one are in a file of their own, and are its size too.
    assert said["b"]["payload_bytes"] == sum(
        (aotc.folder / name).stat().st_size for name in ("apart.onnx", "apart.bin")
    )
    again = compared(aotc, "a.onnx", "a.onnx")
    assert (again["same_id"], statuses(again)["answers"]) == (True, "same")
    shown = aotc.plain("diff", "a.onnx", "a.onnx").stdout
    assert "same  both files are equal, byte for byte" in shown


def test_models_of_other_inputs(aotc: Command) -> None:
    said = compared(aotc, "a.onnx", "linear.onnx")
    found = statuses(said)
    assert (found["source"], found["shapes"], found["answers"]) == (
        *("changed", "changed"),
        "not-compared",
    )
    assert area(said, "answers")["reason"] == "input 'image' is gone in B"
    operators = {
        change["what"]: (change["a"], change["b"])
        for change in area(said, "source")["changes"]
        if ".op_types." in change["what"]
    }
    assert operators["source.op_types.Conv"] == (3, None)
    assert operators["source.op_types.MatMul"] == (None, 1)
    failed = compared(aotc, "a.onnx", "linear.onnx", "--fail-on", "shapes", status=1)
    assert [each["code"] for each in failed["failed"]] == ["AOTC-I061"]


def test_an_artifact_and_its_source(aotc: Command) -> None:
    said = compared(aotc, "a.onnx", "a.aotc", "--fail-on", "source,shapes,precision,answers")
    found = statuses(said)
    assert said["built_from"] is True
    assert (said["a"]["kind"], said["b"]["kind"]) == ("model", "artifact")
    assert (found["source"], found["shapes"], found["precision"]) == ("same", "same", "same")
    assert (found["answers"], said["answers"]["how"]) == ("same", "ran")
    assert area(said, "trust")["reason"] == "A is a model"
    pairs = [f"model -> {variant['b']}" for variant in said["variants"]]
    assert pairs == ["model -> portable", "model -> native"]
    (portable,) = (nodes for nodes in said["nodes"] if nodes["variant"] == pairs[0])
    removed = {node["op_a"] for node in portable["removed"]}
    assert "BatchNormalization" in removed
    assert (portable["moved"], portable["nodes_a"]) == ([], 14)
    shown = " ".join(aotc.plain("diff", "a.onnx", "a.aotc").stdout.split())
    assert "built from it yes: the artifact names this very model, by its digest" in shown
    back = compared(aotc, "a.aotc", "a.onnx")
    assert (back["built_from"], back["b"]["kind"]) == (True, "model")


def test_an_artifact_and_another_model(aotc: Command) -> None:
    said = compared(aotc, "b.onnx", "a.aotc")
    assert said["built_from"] is False
    found = statuses(said)
    assert (found["source"], found["answers"]) == ("changed", "changed")
    shown = " ".join(aotc.plain("diff", "b.onnx", "a.aotc").stdout.split())
    assert "built from it no: the artifact names a model of another digest" in shown
    # External data counts as the model does.
    said = compared(aotc, "apart.onnx", "a.aotc", "--no-run")
    assert said["built_from"] is False
    assert area(said, "answers")["reason"] == "nothing is run"


def test_lower_precision_is_told(aotc: Command) -> None:
    folder = aotc.folder
    every = np.load(DIGITS.with_name("heldout.npz"))["image"]
    np.savez(folder / "samples.npz", image=every[100:200])
    built = aotc(
        *("build", "a.onnx", "-o", "int8.aotc", "--precision", "int8"),
        *("--calibration", "samples.npz"),
    )
    assert built.status == 0, built
    said = compared(aotc, "a.onnx", "int8.aotc", "--no-run")
    changes = {change["subject"]: change for change in area(said, "precision")["changes"]}
    assert changes["model -> portable"]["a"] == "keep"
    assert changes["model -> portable"]["b"] == "int8"


def test_nothing_of_an_artifact_is_run_that_nobody_vouches_for(
    aotc: Command, tmp_path: Path
) -> None:
    """The model's own answers then have nothing to be compared with."""
    stranger = Command(tmp_path)
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).write_bytes((aotc.folder / name).read_bytes())
    said = compared(stranger, "a.onnx", str(aotc.folder / "a.aotc"))
    assert said["built_from"] is True
    assert area(said, "answers")["status"] == "not-compared"
    assert "B is not run, as it does not verify: AOTC-G002" in area(said, "answers")["reason"]


def test_inputs_that_cannot_be_made(aotc: Command) -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("StringNormalizer", ["x"], ["y"], name="lower")],
            "text",
            [helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])],
            [helper.make_tensor_value_info("y", TensorProto.STRING, ["n"])],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    onnx.save(model, aotc.folder / "text.onnx")
    model.producer_name = "other"
    onnx.save(model, aotc.folder / "text2.onnx")
    said = compared(aotc, "text.onnx", "text2.onnx")
    assert area(said, "answers")["status"] == "not-compared"
    assert "AOTC-I113" in area(said, "answers")["reason"]


def test_what_is_no_model(aotc: Command) -> None:
    (aotc.folder / "broken.onnx").write_bytes(b"\x0a\xff\xff")
    assert aotc("diff", "a.onnx", "broken.onnx").status == 3
    (aotc.folder / "net.tflite").write_bytes(b"TFL3")
    refused = aotc("diff", "a.onnx", "net.tflite").refused("AOTC-I059", 3)
    assert refused["what"] == "this is a model in another form than ONNX"
    refused = aotc("diff", "a.onnx", "b.onnx", "--html", "page.html").refused("AOTC-I059", 3)
    assert refused["what"] == "this is a model, and a page draws two artifacts"
    assert refused["fix"] == (
        "Leave --html out, or build it first, and compare the artifacts: "
        "aotc build a.onnx -o a.aotc"
    )
