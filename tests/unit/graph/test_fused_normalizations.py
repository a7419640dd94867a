"""Normalizations fused for CUDA with the sum before them, and products split into heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from attention_graphs import HEADS, HIDDEN, WIDTH, check_same, ops, tokens
from half_models import in_half
from model_parts import info
from onnx import helper, numpy_helper

from aotc.graph.passes.fuse_for_cuda import fuse

make = helper.make_node


def graph(
    nodes: list[onnx.NodeProto],
    outputs: list[str],
    other: list[Any] | None = None,
    **constants: Any,
) -> onnx.ModelProto:
    """Nodes from `x` and `z` of (batch, length, width) to outputs alike."""
    shape = ["batch", "length", HIDDEN]
    held = {"scale": np.linspace(0.5, 2, HIDDEN, dtype=np.float32), **constants}
    return helper.make_model(
        helper.make_graph(
            nodes,
            "normalized",
            [info("x", shape), info("z", other or shape)],
            [info(name, shape) for name in outputs],
            [numpy_helper.from_array(np.asarray(item), name) for name, item in held.items()],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )


SUM = make("Add", ["x", "z"], ["s"])
NORMALIZED = make("LayerNormalization", ["s", "scale"], ["y"], epsilon=1e-3)


@pytest.mark.parametrize("read", ["nothing", "a node", "the caller"])
def test_a_sum_is_normalized_without_a_bias(read: str) -> None:
    nodes, outputs = [SUM, NORMALIZED], ["y"]
    if read == "a node":
        nodes, outputs = [*nodes, make("Mul", ["s", "scale"], ["w"])], ["y", "w"]
    elif read == "the caller":
        outputs = ["y", "s"]
    model = graph(nodes, outputs)
    fused, records = fuse(model, Path())
    assert "SkipLayerNormalization" in ops(fused) and "Add" not in ops(fused)
    assert {one.name: one.matched for one in records}["fuse-normalization"] == {"skip layer": 1}
    for batch, length in ((1, 1), (3, 7)):
        check_same(model, fused, x=tokens(batch, length), z=tokens(batch, length) * 3)


def image_layer(*, bias: str = "bias", read: bool = False) -> onnx.ModelProto:
    """A layer of images as rows and columns, skipped by rows that are normalized."""
    nodes = [
        make("Reshape", ["x", "to image"], ["i"]),
        make("MatMul", ["i", "weights"], ["p"]),
        make("Add", ["p", bias], ["a"]),
        make("Reshape", ["a", "to rows"], ["r"]),
        make("Add", ["r", "z"], ["s"]),
        # As torch writes it.
        make(
            "LayerNormalization",
            ["s", "scale", "shift"],
            ["y"],
            axis=-1,
            epsilon=1e-3,
            stash_type=1,
        ),
        *([make("ReduceSum", ["a"], ["w"], keepdims=0)] if read else []),
    ]
    chance = np.random.default_rng(2)
    model = graph(
        nodes,
        ["y", *(["w"] if read else [])],
        shift=np.linspace(-1, 1, HIDDEN, dtype=np.float32),
        weights=chance.standard_normal((HIDDEN, HIDDEN)).astype(np.float32),
        bias=np.linspace(-2, 1, HIDDEN, dtype=np.float32),
        wide=np.ones((2, 1, HIDDEN), np.float32),
        **{"to image": np.array([0, 2, 3, HIDDEN]), "to rows": np.array([0, 6, HIDDEN])},
    )
    for value in (*model.graph.input, *model.graph.output):
        if value.name in "xzy":
            value.type.tensor_type.shape.dim[1].dim_value = 6
        elif value.name == "w":
            del value.type.tensor_type.shape.dim[:]
    return onnx.shape_inference.infer_shapes(model)


def test_the_bias_of_a_layer_of_images_is_the_norms() -> None:
    model = image_layer()
    fused, _ = fuse(model, Path())
    (norm,) = (node for node in fused.graph.node if node.op_type == "SkipLayerNormalization")
    assert len(norm.input) == 5 and "Add" not in ops(fused)
    for batch in (1, 3):
        check_same(model, fused, x=tokens(batch, 6), z=tokens(batch, 6) * 3)


@pytest.mark.parametrize("other", [{"bias": "wide"}, {"read": True}], ids=["of rows", "read"])
def test_a_bias_that_is_no_layers_own_stays(other: dict[str, Any]) -> None:
    model = image_layer(**other)
    fused, _ = fuse(model, Path())
    assert ops(fused).count("Add") == 1
    check_same(model, fused, x=tokens(2, 6), z=tokens(2, 6) * 3)


def test_a_sum_is_normalized_in_half() -> None:
    model = in_half(graph([SUM, NORMALIZED, make("Mul", ["s", "scale"], ["w"])], ["y", "w"]))
    fused, _ = fuse(model, Path())
    assert "SkipLayerNormalization" in ops(fused)
    given = {"x": tokens().astype(np.float16), "z": tokens().astype(np.float16)}
    expected, found = (
        ort.InferenceSession(item.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, given
        )
        for item in (model, fused)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-3)


LEFT: dict[str, tuple[list[onnx.NodeProto], list[Any]]] = {
    "one row for all": ([SUM, NORMALIZED], [1, 1, HIDDEN]),
    "of another batch": ([SUM, NORMALIZED], ["others", "length", HIDDEN]),
    "of two axes": (
        [SUM, make("LayerNormalization", ["s", "wide"], ["y"], axis=1)],
        ["batch", "length", HIDDEN],
    ),
    "of two axes, with a scale of one": (
        [SUM, make("LayerNormalization", ["s", "scale"], ["y"], axis=1)],
        ["batch", "length", HIDDEN],
    ),
    "a difference": ([make("Sub", ["x", "z"], ["s"]), NORMALIZED], ["batch", "length", HIDDEN]),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_the_fused_operator_cannot_do_is_left(name: str) -> None:
    nodes, shape = LEFT[name]
    model = graph(nodes, ["y"], shape, wide=np.ones((3, HIDDEN), np.float32))
    fused, records = fuse(model, Path())
    assert records == () and fused is model


def split(nodes: list[onnx.NodeProto], parts: int = 3, axis: int = 2) -> onnx.ModelProto:
    """Attention of one product, with `nodes` from "w3" to "q", "k" and "v"."""
    rng = np.random.default_rng(4)
    held: dict[str, Any] = {
        "w": rng.standard_normal((HIDDEN, parts * HIDDEN)).astype(np.float32),
        "parts": np.array([0, 0, *([parts, HEADS] if axis == 2 else [HEADS, parts]), WIDTH]),
        "heads": np.array([0, 0, HEADS, 3 * WIDTH]),
        "join": np.array([0, 0, HIDDEN]),
        "root": np.float32(2),
        "axis": np.array([axis]),
        **{f"n{number}": np.array([number]) for number in range(5)},
    }
    core = [
        make("MatMul", ["x", "w"], ["w3"]),
        *nodes,
        make("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        make("MatMul", ["q", "kt"], ["s0"]),
        make("Div", ["s0", "root"], ["s"]),
        make("Softmax", ["s"], ["p"], axis=-1),
        make("MatMul", ["p", "v"], ["a"]),
        make("Transpose", ["a"], ["t"], perm=[0, 2, 1, 3]),
        make("Reshape", ["t", "join"], ["y"]),
    ]
    return graph(core, ["y"], **held)


def slices(*firsts: int, step: int = 1) -> list[onnx.NodeProto]:
    """Each of queries, keys and values from one index of the third axis."""
    nodes = [make("Reshape", ["w3", "parts"], ["w5"])]
    for name, first in zip("qkv", firsts, strict=True):
        nodes += [
            make("Slice", ["w5", f"n{first}", f"n{first + step}", "axis"], [f"{name}5"]),
            make("Squeeze", [f"{name}5", "axis"], [f"{name}3"]),
            make("Transpose", [f"{name}3"], [name], perm=[0, 2, 1, 3]),
        ]
    return nodes


OF_HEADS = [
    make("Reshape", ["w3", "heads"], ["w4"]),
    make("Transpose", ["w4"], ["w5"], perm=[0, 2, 1, 3]),
    make("Split", ["w5"], ["q", "k", "v"], axis=-1, num_outputs=3),
]


def same(model: onnx.ModelProto) -> onnx.ModelProto:
    fused, _ = fuse(model, Path())
    for batch, length in ((1, 1), (3, 7)):
        check_same(model, fused, x=tokens(batch, length), z=tokens(batch, length))
    return fused


def test_slices_of_one_product_are_packed() -> None:
    fused = same(split(slices(0, 1, 2)))
    assert "Attention" in ops(fused) and "Slice" not in ops(fused)


def with_weights_of_callers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Of which no columns are taken at build: parts stay parts."""
    shape = next(item.dims for item in model.graph.initializer if item.name == "w")
    model.graph.input.append(info("w", list(shape)))
    return model


def test_slices_in_another_order_are_one_split() -> None:
    fused = same(with_weights_of_callers(split(slices(3, 0, 1), parts=4)))
    assert "MultiHeadAttention" in ops(fused) and ops(fused).count("Split") == 1


def test_parts_of_each_head_are_split_before_the_transpose() -> None:
    fused = same(with_weights_of_callers(split(OF_HEADS)))
    assert "MultiHeadAttention" in ops(fused) and "Transpose" not in ops(fused)


@pytest.mark.parametrize("nodes", [slices(2, 0, 1), OF_HEADS], ids=["slices", "of heads"])
def test_parts_in_any_order_are_packed_again(nodes: list[onnx.NodeProto]) -> None:
    found = ops(same(split(nodes)))
    assert "Attention" in found and not {"MatMul", "Split", "Slice", "Transpose"} & set(found)


def test_slices_of_another_axis_are_left() -> None:
    """Queries, keys and values of each head lie side by side."""
    assert "Split" not in ops(same(split(slices(0, 1, 2), axis=3)))


def test_one_product_is_cut_in_several_ways() -> None:
    model = split(slices(0, 1, 2))
    model.graph.node.extend(
        [
            make("Reshape", ["w3", "sixths"], ["w6"]),
            make("Slice", ["w6", "n3", "n4", "axis"], ["z5"]),
            make("Squeeze", ["z5", "axis"], ["z4"]),
        ]
    )
    sixths = np.array([0, 0, 6, HEADS // 2, WIDTH])
    model.graph.initializer.append(numpy_helper.from_array(sixths, "sixths"))
    model.graph.output.append(info("z4", ["batch", "length", HEADS // 2, WIDTH]))
    assert "Slice" not in ops(same(model))


@pytest.mark.parametrize("firsts", [(0, 1, 2), (3, 0, 1)])
def test_slices_before_opset_13(firsts: tuple[int, int, int]) -> None:
    """The sizes of a Split's parts, and the axes of a Squeeze, are attributes."""
    nodes = slices(*firsts)
    for node in nodes:
        if node.op_type == "Squeeze":
            del node.input[1]
            node.attribute.append(helper.make_attribute("axes", [2]))
    model = split(nodes, parts=max(firsts) + 1)
    model.opset_import[0].version = 12
    assert "Slice" not in ops(same(model))
