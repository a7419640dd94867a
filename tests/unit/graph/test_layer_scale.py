"""Scales of channels in the weights of the layer before them: which are found, and the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
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


def optimized(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """As ONNX Runtime writes it."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    content = model.SerializeToString()
    ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "optimized.onnx")


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
    check_answers(model, found)
    # ONNX Runtime folds what is left of the scale.
    assert "Mul" not in ops(optimized(found, tmp_path))
    assert onnx.checker.check_model(found, full_check=True) is None


def test_names_stay_with_what_has_the_same_numbers(tmp_path: Path) -> None:
    found, _ = folded(graph([*SCALED, SUM]), tmp_path)
    made = {name for node in found.graph.node for name in node.output}
    assert made.isdisjoint({"p", "l"})
    assert made.issuperset({"s", "y"})


def test_weights_that_are_turned_are_scaled_behind_that(tmp_path: Path) -> None:
    turned = make("Transpose", ["turned"], ["weights"], perm=[1, 0])
    weights = np.random.default_rng(5).standard_normal((WIDTH, WIDE)).astype(np.float32)
    model = graph([LAYER[0], *SCALED[1:], SUM], turned=weights)
    model.graph.node.insert(0, turned)
    del model.graph.initializer[[each.name for each in model.graph.initializer].index("weights")]
    model.graph.initializer.append(numpy_helper.from_array(weights, "turned"))
    found, matched = folded(model, tmp_path)
    assert matched == {"linear layer": 1}
    onnx.checker.check_model(found, full_check=True)
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
        (
            [*SCALED, make("MatMul", ["x", "weights"], ["o"]), make("Add", ["s", "o"], ["y"])],
            ("y",),
            {},
        ),
    ],
    ids=[
        *("read twice", "an output", "one number", "one bias", "no constant", "not at once"),
        "weights of two layers",
    ],
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


def test_half_precision_is_left_as_it_is(tmp_path: Path) -> None:
    """ONNX Runtime folds no product of it, so that each call would multiply all weights."""
    model = graph([*SCALED, SUM])
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for tensor in model.graph.initializer:
        half = numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
    assert folded(model, tmp_path)[1] == {}


def test_a_scale_that_stands_behind_the_layer_is_read_before_it(tmp_path: Path) -> None:
    model = graph([*LAYER, make("Constant", [], ["scale"]), SCALED[-1], SUM])
    held = next(each for each in model.graph.initializer if each.name == "scale")
    constant = next(node for node in model.graph.node if node.op_type == "Constant")
    constant.attribute.append(helper.make_attribute("value", held))
    model.graph.initializer.remove(held)
    found, matched = folded(model, tmp_path)
    assert matched == {"linear layer": 1}
    onnx.checker.check_model(found, full_check=True)
    check_answers(model, found)
