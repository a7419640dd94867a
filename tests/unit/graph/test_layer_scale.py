"""Scales of channels in the weights of the layer before them: which are found, and the answers."""

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

NAME = "fold-layer-scale"
WIDE, WIDTH = 24, 16
make = helper.make_node
LAYER = [make("MatMul", ["x", "weights"], ["p"]), make("Add", ["p", "bias"], ["l"])]
SCALED = [*LAYER, make("Mul", ["l", "scale"], ["s"])]
SUM = make("Add", ["s", "skipped"], ["y"])
NORM = make("LayerNormalization", ["y", "gain", "shift"], ["n"], axis=-1)


def graph(
    nodes: list[onnx.NodeProto], outputs: tuple[str, ...] = ("y",), **constants: Any
) -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    drawn = {"weights": (WIDE, WIDTH), "bias": WIDTH, "scale": WIDTH, "gain": WIDTH, "shift": WIDTH}
    held = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in drawn.items()}
    held |= constants
    read = {name for node in nodes for name in node.input}
    rows: list[Any] = ["batch", "length"]
    return helper.make_model(
        helper.make_graph(
            nodes,
            "scaled",
            [
                info(name, [*rows, width], TensorProto.FLOAT)
                for name, width in (("x", WIDE), ("skipped", WIDTH))
                if name in read
            ],
            [info(name, [*rows, WIDTH], TensorProto.FLOAT) for name in outputs],
            [numpy_helper.from_array(held[name], name) for name in held if name in read],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )


def folded(model: onnx.ModelProto, folder: Path) -> tuple[onnx.ModelProto, dict[str, int]]:
    found, records = fuse(model, folder)
    return found, {record.name: record.matched for record in records}.get(NAME, {})


def check_answers(model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    rng = np.random.default_rng(7)
    shapes = {"x": (2, 3, WIDE), "skipped": (2, 3, WIDTH)}
    read = {value.name for value in model.graph.input}
    inputs = {name: rng.standard_normal(shapes[name]).astype(np.float32) for name in read}
    check_same(model, other, **inputs)


@pytest.mark.parametrize(
    "nodes",
    [
        [*SCALED, SUM],
        [*LAYER, make("Mul", ["scale", "l"], ["s"]), SUM],
        [LAYER[0], make("Add", ["bias", "p"], ["l"]), SCALED[-1], SUM],
        [LAYER[0], make("Mul", ["p", "scale"], ["s"]), SUM],
    ],
    ids=["scale last", "scale first", "bias first", "no bias"],
)
def test_a_scale_goes_into_the_layer_before_it(nodes: list[onnx.NodeProto], tmp_path: Path) -> None:
    model = graph(nodes)
    found, matched = folded(model, tmp_path)
    assert matched == {"linear layer": 1}
    scaled = [node for node in found.graph.node if node.op_type == "Mul"]
    constants = {tensor.name for tensor in found.graph.initializer}
    assert all(constants.issuperset(node.input) for node in scaled)
    check_answers(model, found)


def test_the_norm_behind_it_takes_the_sum_with_the_layers_bias(tmp_path: Path) -> None:
    model = graph([*SCALED, SUM, NORM], outputs=("y", "n"))
    found, matched = folded(model, tmp_path)
    assert matched == {"linear layer": 1}
    (norm,) = [node for node in found.graph.node if node.op_type == "SkipLayerNormalization"]
    # The layer's product, what is skipped, the norm's own two, and the layer's bias.
    assert len(norm.input) == 5
    assert not {"Add", "LayerNormalization"}.intersection(ops(found))
    check_answers(model, found)


@pytest.mark.parametrize(
    ("nodes", "outputs", "constants"),
    [
        ([*SCALED, make("Add", ["s", "l"], ["y"])], ("y",), {}),
        ([*SCALED, SUM], ("y", "l"), {}),
        ([*SCALED, SUM], ("y",), {"scale": np.array([2], np.float32)}),
        ([*SCALED, SUM], ("y",), {"bias": np.array([2], np.float32)}),
        ([*LAYER, make("Mul", ["l", "skipped"], ["y"])], ("y",), {}),
        ([*LAYER, make("Relu", ["l"], ["r"]), make("Mul", ["r", "scale"], ["y"])], ("y",), {}),
    ],
    ids=["read twice", "an output", "one number", "one bias", "no constant", "not at once"],
)
def test_other_scales_stay(
    nodes: list[onnx.NodeProto],
    outputs: tuple[str, ...],
    constants: dict[str, Any],
    tmp_path: Path,
) -> None:
    model = graph(nodes, outputs, **constants)
    found, matched = folded(model, tmp_path)
    assert matched == {}
    check_answers(model, found)
