"""Runs and benches of artifacts that hold no fixture, on made inputs, and on given ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from command import Command
from model_parts import info, model_of
from onnx import TensorProto, helper, numpy_helper

from aotc.tools.example_inputs import made_example

MADE = "inputs were made: seed 1729, sizes n=2, values within the ranges of the proof"
NO_FIXTURES: dict[str, Any] = {
    "schema": "aotc.profile/1",
    "name": "p",
    "fixtures": {"max_count": 0},
    "parity": {"random_shapes": 0},
}


def weights(*shape: int) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.random.default_rng(len(shape)).standard_normal(shape)
    return (found * 0.2).astype(np.float32)


@pytest.fixture(scope="module")
def aotc(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command beside `images.aotc`, in int8 by `images.npz`, and `tokens.aotc`."""
    made = Command(tmp_path_factory.mktemp("made"))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "v"], ["y"], "second", pads=[1] * 4),
    ]
    convolutions = model_of(
        nodes,
        {"x": ["n", 3, 16, 16]},
        {"y": ["n", 8, 16, 16]},
        {"w": weights(16, 3, 3, 3), "v": weights(8, 16, 3, 3)},
    )
    (made.folder / "images.onnx").write_bytes(convolutions.SerializeToString())
    images = np.random.default_rng(5).uniform(2, 7, (8, 3, 16, 16)).astype(np.float32)
    np.savez(made.folder / "images.npz", x=images)
    words = ("--precision", "int8", "--calibration", "images.npz", "--dim", "n=1..4:1")
    assert made("build", "images.onnx", *words, "-o", "images.aotc").status == 0

    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], "lookup"),
        helper.make_node("Where", ["mask", "e", "zero"], ["y"], "masked"),
    ]
    tokens = model_of(
        nodes,
        [
            info("ids", ["n", 6], TensorProto.INT64),
            info("mask", ["n", 6, 1], TensorProto.BOOL),
        ],
        {"y": ["n", 6, 4]},
        {"table": weights(37, 4), "zero": np.zeros((), np.float32)},
    )
    (made.folder / "tokens.onnx").write_bytes(tokens.SerializeToString())
    (made.folder / "p.yaml").write_text(yaml.safe_dump(NO_FIXTURES))
    words = ("--profile", "p.yaml", "--dim", "n=1..4", "-o", "tokens.aotc")
    assert made("build", "tokens.onnx", *words).status == 0
    return made


def manifest_of(aotc: Command, name: str) -> dict[str, Any]:
    found = json.loads((aotc.folder / name / "payload" / "aotc.json").read_text())
    assert isinstance(found, dict)
    return found


def findings(document: dict[str, Any]) -> dict[str, str]:
    return {each["code"]: each["what"] for each in document["findings"]}


def test_a_calibrated_artifact_runs_without_the_users_data(aotc: Command) -> None:
    manifest = manifest_of(aotc, "images.aotc")
    assert manifest.get("fixtures", []) == [], "samples stay with the user"
    low, high = (manifest["input_ranges"]["x"][bound] for bound in ("min", "max"))
    assert 2 <= low < high <= 7, "the range of the samples, not of generated inputs"
    first, again = (aotc("run", "images.aotc") for _ in range(2))
    assert (first.status, findings(first.document)["AOTC-I114"]) == (0, MADE)
    (ran,) = first.document["runs"]
    assert (ran["name"], ran["outputs"][0]["value"]) == ("made", "float32[2, 8, 16, 16]")
    assert ran["outputs"] == again.document["runs"][0]["outputs"], "equal runs have equal inputs"


def test_the_line_is_shown(aotc: Command) -> None:
    assert f"AOTC-I114  {MADE}" in aotc.plain("run", "images.aotc").stdout


def test_made_values_are_within_the_observed_ranges(aotc: Command) -> None:
    from aotc.spec.codec import decode
    from aotc.spec.manifest import Manifest

    manifest = decode(Manifest, manifest_of(aotc, "images.aotc"))
    made = made_example(manifest, {"n": 3}).inputs["x"]
    seen = manifest.input_ranges["x"]
    assert isinstance(made, np.ndarray) and isinstance(seen.min, float)
    assert isinstance(seen.max, float)
    assert made.shape == (3, 3, 16, 16) and made.dtype == np.float32
    assert seen.min <= made.min() < made.max() <= seen.max


def test_a_bench_makes_its_inputs_at_the_sizes_asked_for(aotc: Command) -> None:
    found = aotc("bench", "images.aotc", "--runs", "3", "--dim", "n=3", "--threads", "1").document
    assert (found["sizes"], found["threads"]) == ({"n": 3}, 1)
    assert findings(found)["AOTC-I114"] == MADE.replace("n=2", "n=3")


def test_indices_and_masks_are_those_of_the_proof(aotc: Command) -> None:
    ranges = manifest_of(aotc, "tokens.aotc")["input_ranges"]
    assert 0 <= ranges["ids"]["min"] <= ranges["ids"]["max"] < 37
    assert set(ranges["mask"]["values"]) <= {0, 1}
    assert findings(aotc("run", "tokens.aotc", "--threads", "1").document)["AOTC-I114"] == MADE
    assert aotc("bench", "tokens.aotc", "--runs", "2").status == 0


def test_a_bench_of_given_inputs(aotc: Command) -> None:
    np.savez(aotc.folder / "two.npz", x=np.ones((2, 3, 16, 16), np.float32), label=[1, 2])
    found = aotc("bench", "images.aotc", "--runs", "3", "--input", "two.npz")
    assert (found.status, found.document["sizes"]) == (0, {"n": 2})
    assert "AOTC-I114" not in findings(found.document)
    found = aotc("bench", "images.aotc", "--runs", "3", "--input", "two.npz", "--dim", "n=4")
    assert found.document["sizes"] == {"n": 4}, "repeated to the size"
    aotc("bench", "images.aotc", "--input", "images.npz").refused("AOTC-S010", 1)
    aotc("bench", "images.aotc", "--input", "missing.npz").refused("AOTC-I001", 3)
    aotc("bench", "images.aotc", "--input", "two.npy").refused("AOTC-I027", 2)


@pytest.mark.parametrize("command", ("run", "bench"))
def test_a_folder_of_test_data(command: str, aotc: Command) -> None:
    folder = aotc.folder / f"test_data_{command}"
    folder.mkdir()
    tensor = numpy_helper.from_array(np.ones((2, 3, 16, 16), np.float32), "x")
    (folder / "input_0.pb").write_bytes(tensor.SerializeToString())
    more = ("--runs", "2") if command == "bench" else ()
    found = aotc(command, "images.aotc", "--input", folder.name, *more)
    assert found.status == 0 and "AOTC-I114" not in findings(found.document)
    refused = aotc(command, "images.aotc", "--input", folder.name, "--input", "two.npz", *more)
    assert "nothing can be given beside it" in refused.refused("AOTC-I027", 2)["what"]
    (folder / "input_1.pb").write_bytes(tensor.SerializeToString())
    refused = aotc(command, "images.aotc", "--input", folder.name, *more)
    assert refused.refused("AOTC-I027", 2)["what"] == "the number of inputs differs"


def test_values_that_depend_on_each_other_are_refused_with_the_fix(aotc: Command) -> None:
    """A shape whose numbers differ is none, drawn within their range."""
    model = model_of(
        [helper.make_node("Reshape", ["x", "shape"], ["y"], "reshape")],
        [info("x", [2, 35]), info("shape", [2], TensorProto.INT64)],
        {"y": [7, 10]},
    )
    (aotc.folder / "reshape.onnx").write_bytes(model.SerializeToString())
    built = aotc("build", "reshape.onnx", "--profile", "p.yaml", "-o", "reshape.aotc")
    assert built.status == 0
    error = aotc("run", "reshape.aotc").refused("AOTC-I113", 3)
    assert error["what"] == "the model does not run with the inputs that were made"
    assert error["fix"] == "Give inputs with --input."
    aotc("bench", "reshape.aotc", "--runs", "2").refused("AOTC-I113", 3)
    np.savez(aotc.folder / "shape.npz", x=np.ones((2, 35), np.float32), shape=np.array([7, 10]))
    assert aotc("run", "reshape.aotc", "--input", "shape.npz").status == 0


def test_text_of_the_user_is_not_made(aotc: Command) -> None:
    model = model_of(
        [helper.make_node("StringConcat", ["x", "x"], ["y"], "twice")],
        [info("x", [2], TensorProto.STRING)],
        [info("y", [2], TensorProto.STRING)],
        opset=20,
    )
    (aotc.folder / "text.onnx").write_bytes(model.SerializeToString())
    words = ("build", "text.onnx", "--profile", "p.yaml", "-o", "text.aotc", "--force")
    assert aotc(*words).status == 0
    assert aotc("run", "text.aotc").status == 0, "generated words are in the manifest"
    np.savez(aotc.folder / "names.npz", x=np.array(["Ada", "Grace"]))
    assert aotc(*words, "--fixtures", "names.npz").status == 0
    assert "Ada" not in (aotc.folder / "text.aotc" / "payload" / "aotc.json").read_text()
    error = aotc("run", "text.aotc").refused("AOTC-I113", 3)
    assert (error["where"], error["found"]) == ("input x", "a tensor of string")


def test_an_artifact_with_fixtures_runs_these(aotc: Command) -> None:
    assert aotc("build", "images.onnx", "--dim", "n=1..4", "-o", "kept.aotc").status == 0
    assert "input_ranges" not in manifest_of(aotc, "kept.aotc"), "equal builds have equal bytes"
    document = aotc("run", "kept.aotc").document
    assert "AOTC-I114" not in findings(document)
    assert [each["name"] for each in document["runs"]] == ["opt", "min"]


def test_arrays_of_a_program(aotc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    import aotc as library

    monkeypatch.setenv("HOME", str(aotc.folder / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(aotc.folder / "home" / "config"))
    path = Path(aotc.folder / "images.aotc")
    given = {"x": np.ones((2, 3, 16, 16), np.float32)}
    found = library.bench(path, runs=2, inputs=given, store=aotc.store)
    assert found.sizes == {"n": 2}
