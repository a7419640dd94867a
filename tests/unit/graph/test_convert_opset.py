"""Conversion to another opset: the same answers, names and weights, or a reason why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_parts import info, model_of
from onnx import TensorProto, helper, numpy_helper
from third_party_models import MODELS, needs_models

from aotc.graph.passes.base import run_passes
from aotc.graph.passes.convert_opset import ConvertOpset, choose_opset, obstacles, opset_of
from aotc.graph.passes.on_import import NameNodes
from aotc.graph.view import every_node
from aotc.providers.cuda import claim_of

FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
Nodes = list[onnx.NodeProto]


def residual_network(opset: int = 23) -> onnx.ModelProto:
    """A small ResNet in float16, as exporters write it."""
    rng = np.random.default_rng(7)

    def half(*dims: int) -> Any:
        return (rng.standard_normal(dims) * 0.2).astype(np.float16)

    nodes = [
        helper.make_node(
            "Conv", ["x", "w0", "b0"], ["c0"], name="stem", pads=[3] * 4, strides=[2, 2]
        ),
        helper.make_node("Relu", ["c0"], ["r0"], name="relu0"),
        helper.make_node(
            "MaxPool",
            ["r0"],
            ["p0"],
            name="pool",
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=[1] * 4,
        ),
        helper.make_node("Conv", ["p0", "w1", "b1"], ["c1"], name="conv1", pads=[1] * 4),
        helper.make_node("Add", ["c1", "p0"], ["a1"], name="add1"),
        helper.make_node("Relu", ["a1"], ["r1"], name="relu1"),
        helper.make_node("GlobalAveragePool", ["r1"], ["g"], name="mean"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], name="classify", transB=1),
    ]
    weights = {
        "w0": half(8, 3, 7, 7), "b0": half(8), "w1": half(8, 8, 3, 3), "b1": half(8),
        "w2": half(10, 8), "b2": half(10),
    }  # fmt: skip
    return model_of(
        nodes,
        [info("x", [1, 3, 32, 32], HALF)],
        [info("y", [1, 10], HALF)],
        weights,
        opset=opset,
    )


def run(model: onnx.ModelProto | Path, feeds: dict[str, Any]) -> list[Any]:
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # Fusions differ by opset, and so does their rounding.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def refused(model: onnx.ModelProto) -> int:
    return len(claim_of(model).refusals)


def test_a_residual_network_comes_back_to_the_gpu() -> None:
    model = residual_network()
    x = {"x": np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype(np.float16)}
    before = run(model, x)
    assert [refusal.node for refusal in claim_of(model).refusals] == ["pool"]
    names = [node.name for node in model.graph.node]
    weights = [tensor.SerializeToString() for tensor in model.graph.initializer]

    to = choose_opset(model, refused)
    assert to == 21, "the newest without a new MaxPool"
    assert opset_of(model) == 23, "choosing changes nothing"
    run_passes(model, [ConvertOpset(to=to)])

    onnx.checker.check_model(model, full_check=True)
    assert claim_of(model).refusals == ()
    assert [node.name for node in model.graph.node] == names
    assert [tensor.SerializeToString() for tensor in model.graph.initializer] == weights
    np.testing.assert_array_equal(run(model, x)[0], before[0])


@pytest.mark.parametrize("to", range(13, 24))
def test_a_residual_network_at_every_opset(to: int) -> None:
    model = residual_network()
    x = {"x": np.random.default_rng(2).standard_normal((1, 3, 32, 32)).astype(np.float16)}
    before = run(model, x)
    run_passes(model, [ConvertOpset(to=to)])
    onnx.checker.check_model(model, full_check=True)
    np.testing.assert_array_equal(run(model, x)[0], before[0])


def test_nothing_to_gain_keeps_the_opset() -> None:
    assert choose_opset(residual_network(20), refused) is None
    # TreeEnsemble and similar operators have no kernel at any opset.
    assert choose_opset(residual_network(23), lambda _: 1) is None


def test_lowest_bounds_the_choice() -> None:
    assert choose_opset(residual_network(), refused, lowest=22) is None


def test_the_fewest_refusals_win_and_of_those_the_newest() -> None:
    def count(model: onnx.ModelProto) -> int:
        return {23: 5, 22: 5, 21: 3, 20: 3, 19: 1, 18: 1, 17: 2}.get(opset_of(model), 9)

    assert choose_opset(residual_network(), count) == 19


def test_external_data_is_neither_read_nor_lost(tmp_path: Path) -> None:
    model = residual_network()
    x = {"x": np.random.default_rng(3).standard_normal((1, 3, 32, 32)).astype(np.float16)}
    before = run(model, x)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    light = onnx.load(path, load_external_data=False)
    (tmp_path / "weights").rename(tmp_path / "away")
    assert choose_opset(light, refused) == 21
    run_passes(light, [ConvertOpset(to=21)])
    assert all(tensor.external_data for tensor in light.graph.initializer)
    (tmp_path / "away").rename(tmp_path / "weights")
    onnx.save(light, tmp_path / "converted.onnx")
    np.testing.assert_array_equal(run(tmp_path / "converted.onnx", x)[0], before[0])


def test_subgraphs_and_functions_are_converted() -> None:
    pool = helper.make_node(
        "MaxPool", ["a"], ["b"], name="inner", kernel_shape=[2, 2], strides=[2, 2]
    )
    function = helper.make_function(
        "own", "Pool", ["a"], ["b"], [pool], [helper.make_opsetid("", 22)]
    )
    then = helper.make_graph(
        [helper.make_node("ReduceMean", ["p", "axes"], ["t"], name="mean")],
        "then", [], [info("t", [1, 2, 1, 1])], [numpy_helper.from_array(np.array([2, 3]), "axes")],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("ReduceMax", ["p", "axes"], ["e"], name="max", keepdims=1)],
        "else", [], [info("e", [1, 2, 1, 1])], [numpy_helper.from_array(np.array([2, 3]), "axes")],
    )  # fmt: skip
    nodes = [
        helper.make_node("Pool", ["x"], ["p"], name="call", domain="own"),
        helper.make_node("If", ["c"], ["y"], name="if", then_branch=then, else_branch=other),
    ]
    inputs = [info("x", [1, 2, 4, 4]), info("c", [], TensorProto.BOOL)]
    model = model_of(
        nodes,
        inputs,
        [info("y", [1, 2, 1, 1])],
        opset=22,
        domains=["own"],
        functions=[function],
    )
    feeds = {"x": np.random.default_rng(4).standard_normal((1, 2, 4, 4)).astype(np.float32)}
    sides = [{**feeds, "c": np.array(side)} for side in (True, False)]
    onnx.checker.check_model(model)
    before = [run(model, side)[0] for side in sides]
    run_passes(model, [ConvertOpset(to=17)])
    onnx.checker.check_model(model)
    assert {opset_of(model), opset_of(model.functions[0])} == {17}
    assert {node.name for node in every_node(model)} == {"inner", "mean", "max", "call", "if"}
    means = next(node for node in every_node(model) if node.name == "mean")
    assert [attribute.name for attribute in means.attribute if attribute.name == "axes"], (
        "axes are no input there"
    )
    for side, expected in zip(sides, before, strict=True):
        np.testing.assert_array_equal(run(model, side)[0], expected)


def test_defaults_that_the_older_operator_lacks_are_dropped() -> None:
    shape = numpy_helper.from_array(np.array([3, 2]), "s")
    node = helper.make_node("Reshape", ["x", "s"], ["y"], name="n", allowzero=0)
    model = model_of([node], [info("x", [2, 3])], [info("y", [3, 2])], opset=14)
    model.graph.initializer.append(shape)
    run_passes(model, [ConvertOpset(to=13)])
    assert not model.graph.node[0].attribute
    onnx.checker.check_model(model)


X = info("x", [1, 4, 4, 4])
REFUSED: dict[str, tuple[Nodes, list[onnx.ValueInfoProto], int, int, str]] = {
    "operator": ([helper.make_node("Gelu", ["x"], ["y"])], [X], 20, 19, "opset 19 has no Gelu"),
    "attribute": (
        [helper.make_node("Resize", ["x", "", "s"], ["y"], antialias=1, mode="linear")],
        [X, info("s", [4])], 18, 17, "Resize-13 has no antialias",
    ),
    "value": (
        [helper.make_node("Pad", ["x", "p"], ["y"], mode="wrap")],
        [X, info("p", [8], INT64)], 19, 18, "Pad-18 has no mode=wrap",
    ),
    "reduction": (
        [helper.make_node("ScatterElements", ["x", "i", "x"], ["y"], reduction="max")],
        [X, info("i", [1, 4, 4, 4], INT64)], 18, 17,
        "ScatterElements-16 has no reduction=max",
    ),
    "meaning": (
        [helper.make_node("GroupNormalization", ["x", "s", "s"], ["y"], num_groups=2)],
        [X, info("s", [4])], 21, 20, "GroupNormalization-18 has another meaning",
    ),
    "input": (
        [helper.make_node("Pad", ["x", "p", "", "a"], ["y"])],
        [X, info("p", [2], INT64), info("a", [1], INT64)], 18, 17, "Pad-13 has other inputs",
    ),
    "axes that are not constant": (
        [helper.make_node("ReduceMean", ["x", "a"], ["y"])],
        [X, info("a", [1], INT64)], 18, 17, "ReduceMean-13 has axes as an attribute",
    ),
    "type": (
        [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])],
        [info("x", [1, 4, 4, 4], TensorProto.BFLOAT16)], 22, 21,
        "unsupported type: tensor(bfloat16)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_change_is_refused(case: str) -> None:
    nodes, inputs, opset, to, reason = REFUSED[case]
    kind = inputs[0].type.tensor_type.elem_type
    model = model_of(nodes, inputs, [info("y", None, kind)], opset=opset)
    before = model.SerializeToString()
    found = obstacles(model, to)
    assert len(found) == 1 and reason in found[0], found
    assert model.SerializeToString() == before
    with pytest.raises(RuntimeError, match="convert-opset requires"):
        run_passes(model, [ConvertOpset(to=to)])


def test_not_too_far_down() -> None:
    assert obstacles(residual_network(), 12) == ("opset 12 is before 13",)


@needs_models
@pytest.mark.parametrize(("name", "to"), [("basic_pitch_nmp", 13), ("magika_v3_3", 13)])
def test_real_models_compute_the_same(name: str, to: int) -> None:
    model = onnx.load(MODELS / f"{name}.onnx")
    run_passes(model, [NameNodes()])
    (given,) = model.graph.input
    kind = helper.tensor_dtype_to_np_dtype(given.type.tensor_type.elem_type)
    dims = [dim.dim_value or 1 for dim in given.type.tensor_type.shape.dim]
    feeds = {given.name: np.random.default_rng(6).integers(0, 256, dims).astype(kind)}
    before = run(model, feeds)
    names = {node.name for node in every_node(model)}
    run_passes(model, [ConvertOpset(to=to)])
    assert opset_of(model) == to
    assert {node.name for node in every_node(model)} == names
    for one, other in zip(run(model, feeds), before, strict=True):
        np.testing.assert_array_equal(one, other)


UNARY = (
    "Relu",
    "Sigmoid",
    "Softmax",
    "Elu",
    "HardSwish",
    "Softplus",
    "Gelu",
    "Identity",
    "Dropout",
)
STEPS = (
    *UNARY,
    "ReduceMean",
    "ReduceSum",
    "MaxPool",
    "Transpose",
    "Reshape",
    "Split",
    "Cast",
    "Clip",
)


def step(index: int, op: str) -> Nodes:
    """A random operator from a square tensor to one of the same shape."""
    x, y, t = f"v{index}", f"v{index + 1}", f"t{index}"
    name = f"{op}_{index}"
    if op in ("ReduceMean", "ReduceSum"):
        reduce = helper.make_node(op, [x, "one"], [t], name=name, keepdims=1)
        return [reduce, helper.make_node("Add", [x, t], [y], name=f"{name}_add")]
    if op == "MaxPool":
        return [helper.make_node(op, [x], [y], name=name, kernel_shape=[3, 3], pads=[1] * 4)]
    if op == "Reshape":
        return [helper.make_node(op, [x, "shape"], [y], name=name)]
    if op == "Split":
        split = helper.make_node(op, [x, "halves"], [t, f"u{index}"], name=name, axis=2)
        return [split, helper.make_node("Concat", [f"u{index}", t], [y], name=f"{name}_c", axis=2)]
    if op == "Cast":
        return [helper.make_node(op, [x], [y], name=name, to=FLOAT, saturate=1)]
    if op == "Transpose":
        return [helper.make_node(op, [x], [y], name=name, perm=[0, 1, 3, 2])]
    return [helper.make_node(op, [x], [y], name=name)]


@settings(max_examples=40, derandomize=True)
@given(ops=st.lists(st.sampled_from(STEPS), min_size=1, max_size=6), to=st.integers(13, 22))
def test_a_chain_computes_the_same_or_is_refused(ops: list[str], to: int) -> None:
    weights = {
        "one": np.array([2]), "shape": np.array([1, 2, 4, 4]), "halves": np.array([1, 3])
    }  # fmt: skip
    nodes = [node for index, op in enumerate(ops) for node in step(index, op)]
    output = info(f"v{len(ops)}", [1, 2, 4, 4])
    model = model_of(nodes, [info("v0", [1, 2, 4, 4])], [output], weights, opset=23)
    found = obstacles(model, to)
    if "Gelu" in ops and to < 20:
        assert found
    if found:
        assert all("Gelu" in line or "HardSwish" in line for line in found), found
        return
    feeds = {"v0": np.random.default_rng(5).standard_normal((1, 2, 4, 4)).astype(np.float32)}
    before = run(model, feeds)[0]
    run_passes(model, [ConvertOpset(to=to)])
    onnx.checker.check_model(model, full_check=True)
    np.testing.assert_array_equal(run(model, feeds)[0], before)


X = info("x", ["n", 3, 8, 8])
HALVES = np.array([1, 1, 0.5, 0.5], np.float32)
TWICE = np.array([1, 1, 2, 2], np.float32)
THRICE = np.array([1, 1, 3, 3], np.float32)
# Of an operator set before 13: a node that reads `x` [n, 3, 8, 8], and constants that it reads.
RAISED: dict[str, tuple[int, Nodes, dict[str, Any]]] = {
    "a clip by attributes": (7, [helper.make_node("Clip", ["x"], ["y"], min=-0.5, max=0.5)], {}),
    "a clip of nothing": (10, [helper.make_node("Clip", ["x"], ["y"])], {}),
    "a dropout": (7, [helper.make_node("Dropout", ["x"], ["y"], ratio=0.3)], {}),
    "a dropout with a mask": (10, [helper.make_node("Dropout", ["x"], ["y", "m"])], {}),
    "a slice": (
        9,
        [helper.make_node("Slice", ["x"], ["y"], starts=[1, 2], ends=[7, 9], axes=[2, 3])],
        {},
    ),
    "a pad": (7, [helper.make_node("Pad", ["x"], ["y"], pads=[0, 0, 1, 2, 0, 0, 0, 1])], {}),
    "a pad by reflection": (
        10,
        [helper.make_node("Pad", ["x"], ["y"], mode="reflect", pads=[0, 0, 1, 2, 0, 0, 0, 1])],
        {},
    ),
    "sums and squeezes": (
        11,
        [
            helper.make_node("ReduceSum", ["x"], ["s"], axes=[1]),
            helper.make_node("Squeeze", ["s"], ["q"], axes=[1]),
            helper.make_node("Unsqueeze", ["q"], ["y"], axes=[0]),
        ],
        {},
    ),
    "a split": (7, [helper.make_node("Split", ["x"], ["y", "z"], axis=2, split=[3, 5])], {}),
    "the largest": (9, [helper.make_node("TopK", ["x"], ["y", "i"], k=2)], {}),
    "a softmax of all that follows": (7, [helper.make_node("Softmax", ["x"], ["y"], axis=2)], {}),
    "a softmax of one axis": (12, [helper.make_node("Softmax", ["x"], ["y"], axis=-1)], {}),
    "a softmax by default": (11, [helper.make_node("LogSoftmax", ["x"], ["y"])], {}),
    "twice as large": (
        7,
        [helper.make_node("Upsample", ["x"], ["y"], mode="linear", scales=[1.0, 1, 2, 2])],
        {},
    ),
    "nearest, three times": (9, [helper.make_node("Upsample", ["x", "s"], ["y"])], {"s": THRICE}),
    "resized": (
        10,
        [helper.make_node("Resize", ["x", "s"], ["y"], mode="linear")],
        {"s": np.array([1, 1, 1.5, 0.75], np.float32)},
    ),
    "resized, nearest": (10, [helper.make_node("Resize", ["x", "s"], ["y"])], {"s": TWICE}),
    "halved, nearest": (10, [helper.make_node("Resize", ["x", "s"], ["y"])], {"s": HALVES}),
    "a normalization": (
        7,
        [helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y"], spatial=1)],
        {name: np.arange(1, 4, dtype=np.float32) for name in "sbmv"},
    ),
    "pools": (
        7,
        [
            helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2]),
            helper.make_node("AveragePool", ["p"], ["y"], kernel_shape=[3, 3], pads=[1] * 4),
        ],
        {},
    ),
    "a branch": (
        10,
        [
            helper.make_node("ReduceMean", ["x"], ["r"], keepdims=0),
            helper.make_node("Cast", ["r"], ["c"], to=TensorProto.BOOL),
            helper.make_node(
                "If",
                ["c"],
                ["y"],
                then_branch=helper.make_graph(
                    [helper.make_node("Clip", ["x"], ["t"], "clip", min=0.0)],
                    "then",
                    [],
                    [info("t", None)],
                ),
                else_branch=helper.make_graph(
                    [helper.make_node("Neg", ["x"], ["e"], "neg")], "else", [], [info("e", None)]
                ),
            ),
        ],
        {},
    ),
}


@pytest.mark.parametrize("case", RAISED)
def test_an_older_opset_is_raised(case: str) -> None:
    opset, nodes, constants = RAISED[case]
    outputs = [info(name, None) for name in nodes[-1].output if name not in ("m", "i")]
    model = model_of(nodes, [X], outputs, constants, opset=opset, ir_version=8)
    run_passes(model, [NameNodes()])
    x = {"x": np.random.default_rng(3).standard_normal((2, 3, 8, 8)).astype(np.float32)}
    before = run(model, x)
    names = {node.name for node in model.graph.node}
    run_passes(model, [ConvertOpset(to=13)])
    assert opset_of(model) == 13
    assert names <= {node.name for node in model.graph.node}, "nodes keep their names"
    for one, other in zip(before, run(model, x), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


NOT_RAISED: dict[str, tuple[int, Nodes, dict[str, Any], str]] = {
    "a normalization by pixel": (
        8,
        [helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y"], "norm", spatial=0)],
        {name: np.ones((3, 8, 8), np.float32) for name in "sbmv"},
        "norm: onnx cannot convert this BatchNormalization from version 7 to 9",
    ),
    "nearest, larger and smaller at once": (
        10,
        [helper.make_node("Resize", ["x", "s"], ["y"], "resize")],
        {"s": np.array([1, 1, 2, 0.5], np.float32)},
        "resize: onnx cannot convert this Resize from version 10 to 13",
    ),
}


@pytest.mark.parametrize("case", NOT_RAISED)
def test_what_cannot_be_raised_is_named(case: str) -> None:
    opset, nodes, constants, reason = NOT_RAISED[case]
    model = model_of(nodes, [X], [info("y", None)], constants, opset=opset, ir_version=8)
    before = model.SerializeToString()
    assert obstacles(model, 13) == (reason,)
    assert model.SerializeToString() == before
