"""Packed products as one product for each part: which are found, what is left, and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from attention_graphs import check_same, in_order, ops
from model_parts import info
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.passes.base import run_passes
from aotc.graph.passes.fuse_for_cuda import fuse
from aotc.graph.passes.on_import import NameNodes
from aotc.graph.view import standing_for

NAME = "divide-products"
HEADS, WIDTH = 2, 8
HIDDEN = HEADS * WIDTH
make = helper.make_node
Nodes = Mapping[str, onnx.NodeProto | None]

# What exporters write of one linear layer of three parts, by the names of results.
WHOLE: dict[str, onnx.NodeProto | None] = {
    "w": make("MatMul", ["x", "weights"], ["w"]),
    "f": make("Add", ["w", "bias"], ["f"]),
}
SPLIT: Nodes = {**WHOLE, "q": make("Split", ["f", "thirds"], ["q", "k", "v"], axis=-1)}
NUMBERS: dict[str, Any] = {
    "thirds": np.array([HIDDEN] * 3),
    "parted": np.array([0, 0, 3, HEADS, WIDTH]),
    "parted heads": np.array([0, 0, HEADS, 3 * WIDTH]),
    "heads and parts": np.array([0, 0, HEADS, 3, WIDTH]),
    "three": np.array([0, 0, 3, HIDDEN]),
    "rows": np.array([-1, HIDDEN]),
    **{f"number {number}": np.array(number) for number in range(4)},
    **{f"only {number}": np.array([number]) for number in (-2, 0, 1, 2, 3, HIDDEN, 2 * HIDDEN)},
    "only end": np.array([2**63 - 1]),
}


def graph(
    nodes: Nodes,
    *,
    opset: int = 18,
    length: str | int = "length",
    outputs: tuple[str, ...] = ("q", "k", "v"),
    turned: bool = False,
    given: Mapping[str, list[Any]] | None = None,
    kind: type[Any] = np.float32,
    **constants: Any,
) -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    held: dict[str, Any] = {
        "weights": rng.standard_normal((HIDDEN, 3 * HIDDEN)).astype(kind),
        "bias": rng.standard_normal(3 * HIDDEN).astype(kind),
        **NUMBERS,
        **constants,
    }
    nodes = dict(nodes)
    if turned:
        held["turned"] = np.ascontiguousarray(held.pop("weights").T)
        nodes["weights"] = make("Transpose", ["turned"], ["weights"], perm=[1, 0])
    type_of = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    inputs = [info("x", ["batch", length, HIDDEN], type_of)]
    inputs += [info(name, shape, type_of) for name, shape in (given or {}).items()]
    names = {value.name for value in inputs} | set(held)
    ordered = in_order(nodes.values(), names)
    used = {name for node in ordered for name in node.input}
    model = helper.make_model(
        helper.make_graph(
            ordered,
            "packed",
            inputs,
            [
                helper.make_value_info(name, helper.make_tensor_type_proto(type_of, None))
                for name in outputs
            ],
            [
                numpy_helper.from_array(np.asarray(item), name)
                for name, item in held.items()
                if name in used
            ],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=10,
    )
    return onnx.shape_inference.infer_shapes(model)


def matched(model: onnx.ModelProto) -> dict[str, int]:
    """What the pass finds."""
    records = fuse(model, Path())[1]
    return next((dict(one.matched) for one in records if one.name == NAME), {})


def check(model: onnx.ModelProto, **more: Any) -> onnx.ModelProto:
    """The fused model, after the same answers at several sizes."""
    fused, _ = fuse(model, Path())
    rng = np.random.default_rng(5)
    stated = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    for batch, length in ((1, 1), (3, 7)):
        x = rng.standard_normal((batch, stated or length, HIDDEN)).astype(np.float32)
        check_same(model, fused, x=x, **more)
    return fused


def cut_by(op_type: str) -> dict[str, onnx.NodeProto | None]:
    """Parts of (batch, length, 3, heads, width), without the axis that is cut."""
    found = {**WHOLE, "r": make("Reshape", ["f", "parted"], ["r"])}
    for at, name in enumerate("qkv"):
        if op_type == "Gather":
            found[name] = make("Gather", ["r", f"number {at}"], [name], axis=2)
        else:
            ends = ["r", f"only {at}", f"only {at + 1}", "only 2"]
            found[f"{name}1"] = make("Slice", ends, [f"{name}1"])
            found[name] = make("Squeeze", [f"{name}1", "only 2"], [name])
    return found


def of_torch(before: Nodes) -> dict[str, onnx.NodeProto | None]:
    """As torch's MultiheadAttention has it: the parts go first, past an axis of 1."""
    found = {
        **before,
        "r": make("Reshape", ["f", "three"], ["r"]),
        "u": make("Unsqueeze", ["r", "only 0"], ["u"]),
        "t": make("Transpose", ["u"], ["t"], perm=[3, 1, 2, 0, 4]),
        "s": make("Squeeze", ["t", "only -2"], ["s"]),
    }
    for at, name in enumerate("qkv"):
        found[name] = make("Gather", ["s", f"number {at}"], [name], axis=0)
    return found


def parts_first(*cut: onnx.NodeProto) -> dict[str, onnx.NodeProto | None]:
    """As timm's vision transformers have it: parts and heads go first."""
    return {
        **WHOLE,
        "r": make("Reshape", ["f", "parted"], ["r"]),
        "t": make("Transpose", ["r"], ["t"], perm=[2, 0, 3, 1, 4]),
        **{node.output[0]: node for node in cut},
    }


FOUND: dict[str, tuple[Nodes, str]] = {
    "of the last axis": (SPLIT, "split"),
    "without a bias": (
        {
            "w": make("MatMul", ["x", "weights"], ["w"]),
            "q": make("Split", ["w", "thirds"], ["q", "k", "v"], axis=2),
        },
        "split",
    ),
    "the bias first": ({**SPLIT, "f": make("Add", ["bias", "w"], ["f"])}, "split"),
    "slices of any width": (
        {
            **WHOLE,
            "q": make("Slice", ["f", "only 0", "only 32", "only 2"], ["q"]),
            "k": make("Slice", ["f", "only 32", "only 40", "only 2"], ["k"]),
            "v": make("Slice", ["f", "only 40", "only end", "only 2"], ["v"]),
        },
        "slice",
    ),
    "parts before heads, by Gather": (cut_by("Gather"), "gather"),
    "parts before heads, by Slice": (cut_by("Slice"), "slice"),
    "parts of each head": (
        {
            **WHOLE,
            "r": make("Reshape", ["f", "parted heads"], ["r"]),
            "t": make("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3]),
            "q": make("Split", ["t"], ["q", "k", "v"], axis=-1, num_outputs=3),
        },
        "split",
    ),
    "an index of each head": (
        {
            **WHOLE,
            "r": make("Reshape", ["f", "heads and parts"], ["r"]),
            **{
                name: make("Gather", ["r", f"number {at}"], [name], axis=3)
                for at, name in enumerate("qkv")
            },
        },
        "gather",
    ),
    "parts first": (
        parts_first(
            *(
                make("Gather", ["t", f"number {at}"], [name], axis=0)
                for at, name in enumerate("qkv")
            )
        ),
        "gather",
    ),
    "parts first, one of which is kept as an axis": (
        parts_first(
            make("Split", ["t"], ["q1", "k", "v1"], axis=0, num_outputs=3),
            make("Squeeze", ["q1", "only 0"], ["q"]),
            make("Squeeze", ["v1", "only 0"], ["v"]),
        ),
        "split",
    ),
    "past an axis of 1": (of_torch(WHOLE), "gather"),
    "one is read twice, one not at all": (
        {
            **WHOLE,
            "q": make("Split", ["f", "thirds"], ["q", "k1", "v1"], axis=-1),
            "k": make("Neg", ["q"], ["k"]),
            "v": make("Exp", ["v1"], ["v"]),
        },
        "split",
    ),
}
WIDE: dict[str, Any] = {"only 32": np.array([32]), "only 40": np.array([40])}


@pytest.mark.parametrize("turned", [False, True], ids=["stored so", "stored transposed"])
@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("name", FOUND)
def test_parts_of_a_product_are_products(name: str, opset: int, *, turned: bool) -> None:
    nodes, kind = FOUND[name]
    model = graph(nodes, opset=opset, turned=turned, **WIDE)
    assert matched(model) == {kind: 1}
    fused = check(model)
    assert not {"Split", "Slice"} & set(ops(fused))
    # What is left of Gathers takes columns of constants.
    held = {item.name for item in fused.graph.initializer} | {
        node.output[0] for node in fused.graph.node if node.op_type in ("Constant", "Transpose")
    }
    assert all(set(node.input) <= held for node in fused.graph.node if node.op_type == "Gather")
    assert ops(fused).count("MatMul") == (2 if "not at all" in name else 3)


GATES = 3
GATED: dict[str, Any] = {
    "weights": np.linspace(-1, 1, HIDDEN * (2 * HIDDEN + GATES), dtype=np.float32).reshape(
        HIDDEN, 2 * HIDDEN + GATES
    ),
    "bias": np.linspace(-2, 3, 2 * HIDDEN + GATES, dtype=np.float32),
    "uneven": np.array([HIDDEN, HIDDEN, GATES]),
}


@pytest.mark.parametrize("channels_first", [False, True])
@pytest.mark.parametrize("whole", [False, True], ids=["one by one", "as a whole as well"])
def test_gates_beside_wide_parts_have_some_columns_more(
    *, channels_first: bool, whole: bool
) -> None:
    axis = 1 if channels_first else 2
    axes = f"only {axis}"
    turned = make("Transpose", ["f"], ["t"], perm=[0, 2, 1])
    cut = "t" if channels_first else "f"
    nodes = {
        **WHOLE,
        **({"t": turned} if channels_first else {}),
        "q": make("Split", [cut, "uneven"], ["q", "k", "g"], axis=axis),
        "v": make("Slice", ["g", "only 0", "only 1", axes], ["v"]),
        # To the end, of which the columns that are added are no part.
        "z": make("Slice", ["g", "only 2", "only end", axes], ["z"]),
    }
    outputs = ("q", "k", "v", "z", *(["g"] if whole else []))
    model = graph(nodes, outputs=outputs, **GATED)
    assert matched(model) == {"split": 1}
    fused = check(model)
    assert ops(fused).count("MatMul") == 3 and "Split" not in ops(fused)
    shapes = {
        value.name: value.type.tensor_type.shape
        for value in onnx.shape_inference.infer_shapes(fused).graph.value_info
    }
    products = [node.output[0] for node in fused.graph.node if node.op_type == "MatMul"]
    assert sorted(shapes[name].dim[-1].dim_value for name in products) == [8, HIDDEN, HIDDEN]


@pytest.mark.parametrize(("opset", "divided"), [(9, 0), (10, 1)])
def test_gates_are_cut_where_slices_have_their_ends_as_inputs(opset: int, divided: int) -> None:
    parts = make("Split", ["f"], ["q", "k", "g"], axis=2, split=[HIDDEN, HIDDEN, GATES])
    held = {name: value for name, value in GATED.items() if name != "uneven"}
    model = graph({**WHOLE, "q": parts}, opset=opset, outputs=("q", "k", "g"), **held)
    fused = check(model)
    assert ops(fused).count("MatMul") == (3 if divided else 1)


def test_what_a_branch_cuts_of_gates_is_its_own() -> None:
    branches = [
        helper.make_graph(
            [make("Slice", ["g", "only 0", f"only {end}", "only 2"], [f"o{end}"])],
            f"branch {end}",
            [],
            [helper.make_tensor_value_info(f"o{end}", TensorProto.FLOAT, None)],
        )
        for end in (1, 2)
    ]
    nodes: Nodes = {
        **WHOLE,
        "q": make("Split", ["f", "uneven"], ["q", "k", "g"], axis=2),
        "m": make("ReduceSum", ["x"], ["m"], keepdims=0),
        "c": make("Greater", ["m", "zero"], ["c"]),
        "o": make("If", ["c"], ["o"], then_branch=branches[0], else_branch=branches[1]),
    }
    model = graph(nodes, outputs=("q", "k", "o"), zero=np.array(0, np.float32), **GATED)
    read = ("only 0", "only 1", "only 2")
    model.graph.initializer.extend(numpy_helper.from_array(NUMBERS[name], name) for name in read)
    assert ops(check(model)).count("MatMul") == 3


def test_heads_that_are_put_side_by_side_again_are_not_reshaped() -> None:
    nodes = {**FOUND["parts of each head"][0], "t": None}
    nodes["q"] = make("Split", ["r"], ["q1", "k1", "v1"], axis=-1, num_outputs=3)
    for name in "qkv":
        nodes[name + "2"] = make("Reshape", [f"{name}1", "side by side"], [name])
    beside: dict[str, Any] = {"side by side": np.array([0, 0, HIDDEN])}
    model = graph(nodes, **beside)
    assert "Reshape" not in ops(check(model))


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_no_more_bytes_are_stored(tmp_path: Path, kind: type[Any]) -> None:
    stored = {}
    for name, (nodes, _) in FOUND.items():
        model = graph(nodes, kind=kind, **WIDE)
        for which, each in (("before", model), ("after", fuse(model, Path())[0])):
            options = ort.SessionOptions()
            options.log_severity_level = 4
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
            options.optimized_model_filepath = str(tmp_path / "written.onnx")
            ort.InferenceSession(
                each.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            written = onnx.load(tmp_path / "written.onnx").graph
            assert "Gather" not in [node.op_type for node in written.node] or which == "before"
            stored[which] = sum(
                numpy_helper.to_array(item).nbytes
                for item in written.initializer
                if item.data_type != TensorProto.INT64
            )
        assert stored["after"] <= stored["before"], name


LEFT: dict[str, tuple[Nodes, dict[str, Any]]] = {
    "the whole is read": ({**SPLIT, "z": make("Exp", ["f"], ["z"])}, {"outputs": ("q", "v", "z")}),
    "the whole is an output": (SPLIT, {"outputs": ("q", "v", "f")}),
    "the product is read before the bias": (
        {**SPLIT, "z": make("Exp", ["w"], ["z"])},
        {"outputs": ("q", "v", "z")},
    ),
    "others read the weights": (
        {
            **SPLIT,
            "y": make("Tanh", ["x"], ["y"]),
            "z": make("MatMul", ["y", "weights"], ["z"]),
        },
        {"outputs": ("q", "v", "z")},
    ),
    "a caller may replace the weights": (SPLIT, {"given": {"weights": [HIDDEN, 3 * HIDDEN]}}),
    "a sum with what is no bias": (
        SPLIT,
        {"bias": np.ones((1, 7, 3 * HIDDEN), np.float32), "length": 7},
    ),
    "one row for each item": (SPLIT, {"length": 1}),
    "parts of the length": (
        {**WHOLE, "q": make("Split", ["f", "of length"], ["q", "k", "v"], axis=1)},
        {"length": 6, "of length": np.array([2, 2, 2])},
    ),
    "too narrow": (
        SPLIT,
        {"thirds": np.array([4, 20, 24])},
    ),
    "parts that overlap": (
        {
            **WHOLE,
            "q": make("Slice", ["f", "only 0", "only 40", "only 2"], ["q"]),
            "k": make("Slice", ["f", "only 32", "only end", "only 2"], ["k"]),
        },
        {"outputs": ("q", "k"), **WIDE},
    ),
    "in steps": (
        {
            **WHOLE,
            "q": make("Slice", ["f", "only 0", "only end", "only 2", "only 2"], ["q"]),
            "k": make("Slice", ["f", "only 1", "only end", "only 2", "only 2"], ["k"]),
        },
        {"outputs": ("q", "k")},
    ),
    "of two axes": (
        {
            **WHOLE,
            "r": make("Reshape", ["f", "parted"], ["r"]),
            "q": make("Gather", ["r", "number 0"], ["q"], axis=2),
            "k": make("Gather", ["r", "number 1"], ["k"], axis=3),
        },
        {"outputs": ("q", "k")},
    ),
    "columns become rows": (
        {
            **WHOLE,
            "r": make("Reshape", ["f", "rows"], ["r"]),
            "q": make("Split", ["r", "halves"], ["q", "k"], axis=-1),
        },
        {"outputs": ("q", "k"), "halves": np.array([8, 8])},
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_would_cost_more_or_is_no_packed_product_is_left(name: str) -> None:
    nodes, options = LEFT[name]
    model = graph(nodes, **options)
    assert matched(model) == {}
    given = {}
    if "given" in options:
        given["weights"] = np.ones((HIDDEN, 3 * HIDDEN), np.float32)
    if options.get("length") != 7:
        check(model, **given)


@pytest.mark.parametrize("alike", [True, False])
def test_layers_that_share_weights_share_those_of_their_parts(*, alike: bool) -> None:
    sizes = "thirds" if alike else "others"
    nodes = {
        **SPLIT,
        "x2": make("Tanh", ["x"], ["x2"]),
        "w2": make("MatMul", ["x2", "weights"], ["w2"]),
        "q2": make("Split", ["w2", sizes], ["q2", "k2", "v2"], axis=-1),
    }
    model = graph(nodes, outputs=("q", "k", "v", "q2", "k2", "v2"), others=np.array([8, 8, 32]))
    fused = check(model)
    assert matched(model) == ({"split": 2} if alike else {})
    taken = [node for node in fused.graph.node if node.op_type == "Gather"]
    assert len({node.input[0] for node in taken} & {"weights"}) == alike
    # One for each part of the weights, and of one bias.
    assert len(taken) == (6 if alike else 0)


def test_a_branch_reads_the_whole() -> None:
    shape = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    branches: dict[str, Any] = {
        f"{which}_branch": helper.make_graph(
            [make(op_type, ["f"], [which])], which, [], [helper.make_value_info(which, shape)]
        )
        for which, op_type in (("then", "Exp"), ("else", "Neg"))
    }
    nodes = {**SPLIT, "z": make("If", ["chosen"], ["z"], **branches)}
    model = graph(nodes, outputs=("q", "v", "z"), chosen=np.array(True))
    model.graph.input.append(info("chosen", [], TensorProto.BOOL))
    assert matched(model) == {}


@pytest.mark.parametrize("name", FOUND)
def test_the_products_stand_for_the_packed_one(name: str) -> None:
    """So that a node that a profile keeps in float32 stays there."""
    model = graph(FOUND[name][0], **WIDE)
    run_passes(model, (NameNodes(),))
    fused = fuse(model, Path())[0]
    run_passes(fused, (NameNodes(),))
    (packed,) = (node.name for node in model.graph.node if node.op_type == "MatMul")
    stands = standing_for(model.graph, fused.graph, [packed])
    assert {node.name for node in fused.graph.node if node.op_type == "MatMul"} <= stands
