"""Expected answers in float64: as numpy has them, with the noise of float32 beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from model_parts import model_of
from onnx import TensorProto, helper, numpy_helper
from workbench import Workbench

from aotc.base.errors import AotcError
from aotc.spec.run_report import Journal

FLOAT = TensorProto.FLOAT


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


def exact(bench: Workbench, more: str = "", against: str = "against: float64") -> Path:
    path = bench.folder / "exact.yaml"
    path.write_text(f"schema: aotc.profile/1\nname: exact\ngates:\n  {against}\n{more}")
    return path


def layers(activation: str = "Tanh", count: int = 6) -> tuple[onnx.ModelProto, list[Any]]:
    """Products with activations between them, and their weights."""
    random = np.random.default_rng(11)
    weights = [(random.normal(size=(48, 48)) / 4).astype(np.float32) for _ in range(count)]
    nodes, value = [], "x"
    for index in range(count):
        last = index == count - 1
        nodes.append(
            helper.make_node("MatMul", [value, f"w{index}"], [f"m{index}"], name=f"product{index}")
        )
        value = "y" if last else f"a{index}"
        nodes.append(helper.make_node(activation, [f"m{index}"], [value], name=f"act{index}"))
    model = model_of(
        nodes,
        inputs=[helper.make_tensor_value_info("x", FLOAT, ["n", 48])],
        outputs=[helper.make_tensor_value_info("y", FLOAT, ["n", 48])],
        initializers=[numpy_helper.from_array(each, f"w{i}") for i, each in enumerate(weights)],
    )
    return model, weights


def test_golden_answers_are_those_of_float64_in_the_outputs_type(bench: Workbench) -> None:
    model, weights = layers()
    profile = exact(bench)
    built = bench.build(model, "exact", profile=profile, dims={"n": "2"}, cache=False)
    assert "AOTC-N026" not in built.codes()
    (fixture,) = built.manifest.fixtures[:1]
    x = np.load(built.payload / fixture.inputs[0].path).astype(np.float64)
    for weight in weights:
        x = np.tanh(x @ weight.astype(np.float64))
    golden = np.load(built.payload / fixture.outputs[0].path)
    assert golden.dtype == np.float32
    # To the rounding of the output itself: float32 sums would be further off.
    assert np.abs(golden - x).max() <= np.spacing(np.float32(np.abs(x).max())) / 2 * 1.01
    noise = evidence_of(bench, built)["noise"]
    (own,) = noise
    assert own["output"] == "y"
    assert 1e-8 < own["max_abs"] < 1e-5
    assert 100 < own["sqnr_db"] < 160


def evidence_of(bench: Workbench, built: Any) -> Any:
    import base64
    import json

    bundle = json.loads(next(built.path.glob("**/evidence*")).read_text())
    payload = bundle["dsseEnvelope"]["payload"] if "dsseEnvelope" in bundle else bundle["payload"]
    return json.loads(base64.b64decode(payload))["predicate"]


def test_a_limit_below_the_models_own_noise_is_told_with_both(bench: Workbench) -> None:
    model, _ = layers()
    gates = "  outputs: {y: {min_sqnr_db: 300}}\n"
    journal = Journal()
    with pytest.raises(AotcError) as refused:
        bench.build(model, "no", profile=exact(bench, gates), cache=False, journal=journal)
    assert refused.value.code == "AOTC-N020"
    (told,) = (finding for finding in journal.findings if finding.code == "AOTC-N023")
    assert told.where == "output y"
    assert told.what.startswith("the original's own noise in float32 is max absolute ")
    assert "below it: gates.outputs.y.min_sqnr_db: SQNR >= 300 dB, noise " in told.what
    # In a build that passes it is told too, and stands in no payload.
    loose = "  outputs: {y: {min_sqnr_db: 60}}\nparity:\n  tf32: {atol: 0, rtol: 0}\n"
    built = bench.build(model, "loose", profile=exact(bench, loose), cache=False)
    assert "AOTC-N023" not in {finding.code for finding in built.report.findings}


def test_the_noise_is_measured_for_float32_only_where_asked(bench: Workbench) -> None:
    model, _ = layers()
    plain = bench.build(model, "plain", profile=exact(bench, against="against: float32"))
    assert not evidence_of(bench, plain).get("noise")
    asked = bench.build(model, "asked", profile=exact(bench, against="noise: true"), cache=False)
    assert evidence_of(bench, asked)["noise"]
    golden = [
        (built.payload / built.manifest.fixtures[0].outputs[0].path).read_bytes()
        for built in (plain, asked)
    ]
    assert golden[0] == golden[1]


def test_nodes_without_a_kernel_in_float64_are_counted(bench: Workbench) -> None:
    model, _ = layers("Erf")
    built = bench.build(model, "erf", profile=exact(bench), cache=False)
    assert built.finding("AOTC-N026") == ("reference: 6 of 12 nodes compute in float32: 6 Erf")


def test_control_flow_and_integers_stay_as_they_are(bench: Workbench) -> None:
    body = helper.make_graph(
        [helper.make_node("Neg", ["m0"], ["b"], name="negate")],
        "then",
        [],
        [helper.make_tensor_value_info("b", FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["m0"], ["c"], name="same")],
        "else",
        [],
        [helper.make_tensor_value_info("c", FLOAT, None)],
    )
    weight = np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32)
    model = model_of(
        [
            helper.make_node("Cast", ["i"], ["x"], name="numbers", to=FLOAT),
            helper.make_node("MatMul", ["x", "w"], ["m0"], name="product"),
            helper.make_node("If", ["flag"], ["y"], name="branch", then_branch=body,
                             else_branch=other),
            helper.make_node("Add", ["i", "i"], ["twice"], name="twice"),
        ],
        inputs=[
            helper.make_tensor_value_info("i", TensorProto.INT64, [2, 8]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        ],
        outputs=[
            helper.make_tensor_value_info("y", FLOAT, [2, 8]),
            helper.make_tensor_value_info("twice", TensorProto.INT64, [2, 8]),
        ],
        initializers=[numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    built = bench.build(model, "flow", profile=exact(bench), cache=False)
    assert built.finding("AOTC-N026").endswith("1 of 4 nodes compute in float32: 1 If")
    assert [item["output"] for item in evidence_of(bench, built)["noise"]] == ["y"]


def test_a_model_with_external_data_and_local_functions(bench: Workbench) -> None:
    model, _ = layers(count=2)
    function = helper.make_function(
        "made", "twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"], name="add")],
        [helper.make_opsetid("", 21)],
    )  # fmt: skip
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("made", 1))
    model.graph.node[-1].output[0] = "half"
    model.graph.node.append(helper.make_node("twice", ["half"], ["y"], name="call", domain="made"))
    path = bench.folder / "external.onnx"
    onnx.save_model(model, path, save_as_external_data=True, size_threshold=0)
    built = bench.build(path, "external", profile=exact(bench), cache=False)
    assert "AOTC-N026" not in built.codes()
    with bench.load(built) as loaded:
        assert loaded.run({"x": np.ones((1, 48), np.float32)})["y"].shape == (1, 48)


def test_recurrent_nodes_whose_kernel_refuses_float64_stay_in_float32(bench: Workbench) -> None:
    random = np.random.default_rng(2)
    model = model_of(
        [
            helper.make_node("Tanh", ["x"], ["t"], name="tanh"),
            helper.make_node("GRU", ["t", "w", "r"], ["y"], name="gru", hidden_size=4),
        ],
        inputs=[helper.make_tensor_value_info("x", FLOAT, [5, 1, 3])],
        outputs=[helper.make_tensor_value_info("y", FLOAT, [5, 1, 1, 4])],
        initializers=[
            numpy_helper.from_array(random.normal(size=(1, 12, width)).astype(np.float32), name)
            for name, width in (("w", 3), ("r", 4))
        ],
    )
    built = bench.build(model, "gru", profile=exact(bench), cache=False)
    assert built.finding("AOTC-N026").endswith("1 of 2 nodes compute in float32: 1 GRU")
    (own,) = evidence_of(bench, built)["noise"]
    assert own["max_abs"] < 1e-5
