"""Layer normalization in single operators becomes one: for CUDA, over any one axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from attention_graphs import check_same, ops
from model_parts import info
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.passes.fuse_for_cuda import fuse
from aotc.graph.view import every_node

CHANNELS = 6
make = helper.make_node


def image(*nodes: onnx.NodeProto, axis: int, opset: int = 18, **changed: Any) -> onnx.ModelProto:
    """`nodes` from "x" to "y", of (n, 6, height, width) or of (n, height, width, 6)."""
    kind = changed.pop("kind", TensorProto.FLOAT)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    rng = np.random.default_rng(3)
    along = [CHANNELS if at == axis else 1 for at in range(4)][1:]
    held: dict[str, Any] = {
        "axes": np.array([axis]),
        "two": np.float32(2),
        "epsilon": np.float32(1e-3),
        "one": np.float32(1),
        "minus": np.float32(-0.5),
        "scale": rng.standard_normal(along).astype(dtype),
        "bias": rng.standard_normal(along).astype(dtype),
        **changed,
    }
    shape = ["n", "height", "width"]
    shape.insert(axis, CHANNELS)
    graph = helper.make_graph(
        list(nodes),
        "image",
        [info("x", shape, kind)],
        [info("y", shape, kind)],
        [numpy_helper.from_array(np.asarray(item), name) for name, item in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def core(source: str = "x", result: str = "q") -> list[onnx.NodeProto]:
    return [
        make("ReduceMean", [source, "axes"], ["u"], keepdims=1),
        make("Sub", [source, "u"], ["d"]),
        make("Pow", ["d", "two"], ["s"]),
        make("ReduceMean", ["s", "axes"], ["v"], keepdims=1),
        make("Add", ["v", "epsilon"], ["e"]),
        make("Sqrt", ["e"], ["r"]),
        make("Div", ["d", "r"], [result]),
    ]


AFFINE = [make("Mul", ["scale", "q"], ["m"]), make("Add", ["m", "bias"], ["y"])]


def swapped(nodes: list[onnx.NodeProto], *new: onnx.NodeProto, at: int) -> list[onnx.NodeProto]:
    return [*nodes[:at], *new, *nodes[at + 1 :]]


FORMS = {
    "as exported": [*core(), *AFFINE],
    "a product": [*swapped(core(), make("Mul", ["d", "d"], ["s"]), at=2), *AFFINE],
    "two differences": [
        *swapped(core(), make("Sub", ["x", "u"], ["d2"]), make("Pow", ["d2", "two"], ["s"]), at=2),
        *AFFINE,
    ],
    "a reciprocal": [
        *core()[:6],
        make("Reciprocal", ["r"], ["i"]),
        make("Mul", ["i", "d"], ["q"]),
        *AFFINE,
    ],
    "one over it": [
        *core()[:6],
        make("Div", ["one", "r"], ["i"]),
        make("Mul", ["d", "i"], ["q"]),
        *AFFINE,
    ],
    "a power": [
        *core()[:5],
        make("Pow", ["e", "minus"], ["i"]),
        make("Mul", ["d", "i"], ["q"]),
        *AFFINE,
    ],
    "no factor, no sum": core(result="y"),
    "no factor": [*core(), make("Add", ["bias", "q"], ["y"])],
    "no sum": [*core(), make("Mul", ["q", "scale"], ["y"])],
}


def pixels(axis: int, batch: int = 2, height: int = 3, width: int = 5) -> Any:
    shape = [batch, height, width]
    shape.insert(axis, CHANNELS)
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32) * 3 + 1


def found(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, int]]:
    fused, records = fuse(model, Path())
    (own,) = [dict(one.matched) for one in records if one.name == "fuse-layer-norm"] or [{}]
    return fused, own


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_one_node(name: str, axis: int) -> None:
    model = image(*FORMS[name], axis=axis)
    fused, matched = found(model)
    assert matched == {"last axis" if axis == 3 else "another axis": 1}
    kept = [op for op in ops(fused) if op not in ("Constant", "Reshape")]
    between = [] if axis == 3 else ["Transpose"]
    assert kept == [*between, "LayerNormalization", *between]
    for batch, height, width in ((1, 1, 1), (2, 3, 5), (3, 8, 2), (0, 3, 5)):
        check_same(model, fused, x=pixels(axis, batch, height, width))


def test_a_factor_and_a_sum_of_one_dim_along_the_last_axis() -> None:
    rng = np.random.default_rng(8)
    flat = {name: rng.standard_normal(CHANNELS).astype(np.float32) for name in ("scale", "bias")}
    model = image(*FORMS["as exported"], axis=3, **flat)
    fused, matched = found(model)
    assert matched == {"last axis": 1} and ops(fused) == ["LayerNormalization"]
    check_same(model, fused, x=pixels(3))


def test_axes_as_an_attribute_and_a_negative_one() -> None:
    model = image(*FORMS["as exported"], axis=1, opset=17)
    for node in model.graph.node:
        if node.op_type == "ReduceMean":
            del node.input[1]
            node.attribute.append(helper.make_attribute("axes", [-3]))
    fused, matched = found(model)
    assert matched == {"another axis": 1}
    check_same(model, fused, x=pixels(1))


def test_in_half_it_is_found_between_its_casts() -> None:
    """As models in half compute it: in float32, with the factor and the sum in half again."""
    half = TensorProto.FLOAT16
    nodes = [
        make("Cast", ["x"], ["x32"], to=TensorProto.FLOAT),
        *core("x32", "q32"),
        make("Cast", ["q32"], ["q"], to=half),
        *AFFINE,
    ]
    model = image(*nodes, axis=1, kind=half)
    fused, matched = found(model)
    assert matched == {"another axis": 1} and "Cast" not in ops(fused)
    normal = next(node for node in fused.graph.node if node.op_type == "LayerNormalization")
    assert normal.attribute and "Sqrt" not in ops(fused)


def test_what_leaves_in_float32_is_computed_from_float32() -> None:
    nodes = [
        make("Cast", ["x"], ["x32"], to=TensorProto.FLOAT),
        *core("x32", "y"),
    ]
    model = image(*nodes, axis=3, kind=TensorProto.FLOAT16)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    fused, matched = found(model)
    assert matched == {"last axis": 1} and "Cast" in ops(fused)
    check_same(model, fused, x=pixels(3).astype(np.float16))


LEFT: dict[str, tuple[list[onnx.NodeProto], dict[str, Any]]] = {
    "two axes": (FORMS["as exported"], {"axes": np.array([1, 2])}),
    "the batch's axis": (FORMS["as exported"], {"axes": np.array([0])}),
    "a cube": (FORMS["as exported"], {"two": np.float32(3)}),
    "another's mean": (
        swapped(FORMS["as exported"], make("Sub", ["x2", "u"], ["d"]), at=1),
        {"x2": np.ones((1, CHANNELS, 1, 1), np.float32)},
    ),
    "epsilon of each channel": (
        FORMS["as exported"],
        {"epsilon": np.full((1, CHANNELS, 1, 1), 1e-3, np.float32)},
    ),
    "the variance of another axis": (
        swapped(FORMS["as exported"], make("ReduceMean", ["s", "other"], ["v"]), at=3),
        {"other": np.array([2])},
    ),
    "divides another value": (
        swapped(FORMS["as exported"], make("Div", ["s", "r"], ["q"]), at=6),
        {},
    ),
    "is divided": (swapped(FORMS["as exported"], make("Div", ["r", "d"], ["q"]), at=6), {}),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_only_looks_like_it_is_left(name: str) -> None:
    nodes, constants = LEFT[name]
    model = image(*nodes, axis=1, **constants)
    fused, matched = found(model)
    assert not matched
    check_same(model, fused, x=pixels(1))


def test_a_factor_of_pixels_is_no_factor_of_channels() -> None:
    """With as many columns as channels, so that sizes alone would not tell."""
    model = image(*FORMS["as exported"], axis=1, scale=np.ones((1, 1, CHANNELS), np.float32) * 3)
    fused, matched = found(model)
    assert matched == {"another axis": 1} and "Mul" in ops(fused)
    check_same(model, fused, x=pixels(1, width=CHANNELS))


@pytest.mark.parametrize("read", ["q", "m", "r", "d"])
def test_what_is_read_elsewhere_stays_the_same(read: str) -> None:
    model = image(*FORMS["as exported"], make("Neg", [read], ["z"]), axis=1)
    model.graph.output.append(info("z", ["n", None, "height", "width"]))
    fused, matched = found(model)
    assert bool(matched) == (read != "r")
    check_same(model, fused, x=pixels(1))


@pytest.mark.parametrize("inside", [1, 2, 3])
def test_what_a_branch_computes_stays_in_it(inside: int) -> None:
    nodes = [*core(), make("Mul", ["q", "scale"], ["m"]), make("Add", ["m", "bias"], ["z"])]
    for index, node in enumerate(nodes):
        node.name = f"n{index}"
    shape = ["n", "height", "width", CHANNELS]
    branches = {
        "then_branch": helper.make_graph(nodes[-inside:], "then", [], [info("z", shape)]),
        "else_branch": helper.make_graph(
            [make("Neg", ["x"], ["w"], name="other")], "else", [], [info("w", shape)]
        ),
    }
    model = image(*nodes[:-inside], make("If", ["c"], ["y"], **branches), axis=3)
    model.graph.input.append(info("c", [], TensorProto.BOOL))
    fused, matched = found(model)
    assert bool(matched) == (inside < 3)
    for chosen in (False, True):
        check_same(model, fused, x=pixels(3), c=np.array(chosen))


def test_a_body_may_have_names_that_are_made() -> None:
    """As torch's exporter names values, `val_0` and so on, in bodies too."""
    inner = [make("Neg", ["z"], ["val_0"], name="node_LayerNormalization_0")]
    inner += [
        make("Neg", [f"val_{at}"], [f"val_{at + 1}"], name=f"node_LayerNormalization_{at + 1}")
        for at in range(9)
    ]
    shape = ["n", "height", "width", CHANNELS]
    branches = {
        "then_branch": helper.make_graph(inner, "then", [], [info("val_9", shape)]),
        "else_branch": helper.make_graph(
            [make("Sub", ["z", "x"], ["w"], name="other")], "else", [], [info("w", shape)]
        ),
    }
    model = image(*core(result="z"), make("If", ["c"], ["y"], **branches), axis=3)
    model.graph.input.append(info("c", [], TensorProto.BOOL))
    fused, matched = found(model)
    assert matched == {"last axis": 1}
    onnx.checker.check_model(fused)
    names = [node.name for node in every_node(fused)]
    assert len(set(names)) == len(names)
    for chosen in (False, True):
        check_same(model, fused, x=pixels(3), c=np.array(chosen))


def test_double_precision_is_left() -> None:
    """The operator computes in float32."""
    model = image(*core(result="y"), axis=3, kind=TensorProto.DOUBLE)
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    assert not found(model)[1]


@pytest.mark.parametrize("op", ["Tanh", "Gelu"])
def test_a_bias_goes_into_gelu_by_tanh_as_well(op: str) -> None:
    nodes = [make("Add", ["x", "bias"], ["b"]), make("Gelu", ["b"], ["y"], approximate="tanh")]
    if op == "Tanh":
        nodes[1:] = [
            make("Pow", ["b", "three"], ["c"]),
            make("Mul", ["c", "cubic"], ["c1"]),
            make("Add", ["b", "c1"], ["c2"]),
            make("Mul", ["c2", "root"], ["c3"]),
            make("Tanh", ["c3"], ["t"]),
            make("Add", ["t", "one"], ["t1"]),
            make("Mul", ["b", "half"], ["h"]),
            make("Mul", ["h", "t1"], ["y"]),
        ]
    numbers = {"three": 3, "cubic": 0.044715, "root": np.sqrt(2 / np.pi), "half": 0.5}
    flat = np.random.default_rng(3).standard_normal(CHANNELS).astype(np.float32)
    constants = {name: np.float32(number) for name, number in numbers.items()} | {"bias": flat}
    model = image(*nodes, axis=3, opset=20, **constants)
    fused, records = fuse(model, Path())
    assert ops(fused) == ["FastGelu"] and len(fused.graph.node[0].input) == 2
    matched = {one.name: dict(one.matched) for one in records}["fuse-gelu"]
    assert matched == {"bias": 1} | ({"tanh": 1} if op == "Tanh" else {})
    check_same(model, fused, x=pixels(3))
