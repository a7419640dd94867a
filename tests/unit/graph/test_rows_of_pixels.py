"""Transposes between images and rows of their pixels, and what ONNX Runtime leaves of them.

Where a provider takes channels last, ONNX Runtime puts a Transpose before and after every
convolution and moves it on.  Its CPU provider does not; so here the convolutions are replaced by an
operator that nothing is moved through, of channels last, between two Transposes, and its optimizer
is asked what is left.  At a load on CUDA it moves them more readily; only a GPU shows that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from attention_graphs import check_same, ops
from model_parts import info
from onnx import helper, numpy_helper

from aotc.graph.passes.fuse_for_cuda import fuse
from aotc.spec.providers import MICROSOFT

CHANNELS, HEIGHT, WIDTH = 8, 4, 6
PIXELS = HEIGHT * WIDTH
NAME = "move-transposes-to-images"
make = helper.make_node


def model_of(nodes: list[onnx.NodeProto], **constants: Any) -> onnx.ModelProto:
    """`nodes` from the image "x" to the image "y", of equal sizes."""
    rng = np.random.default_rng(2)
    held: dict[str, Any] = {
        "deep": rng.standard_normal((CHANNELS, 1, 3, 3)).astype(np.float32),
        "deep2": rng.standard_normal((CHANNELS, 1, 3, 3)).astype(np.float32),
        "full": rng.standard_normal((CHANNELS, CHANNELS, 1, 1)).astype(np.float32),
        "wide": rng.standard_normal((CHANNELS, 16)).astype(np.float32),
        "back": rng.standard_normal((16, CHANNELS)).astype(np.float32),
        "gamma": rng.standard_normal(CHANNELS).astype(np.float32),
        "scale": rng.standard_normal(CHANNELS).astype(np.float32),
        "bias": rng.standard_normal(CHANNELS).astype(np.float32),
        "rows": np.array([-1, CHANNELS, PIXELS]),
        "image": np.array([-1, CHANNELS, HEIGHT, WIDTH]),
        **constants,
    }
    shape = ["n", CHANNELS, HEIGHT, WIDTH]
    graph = helper.make_graph(
        nodes,
        "image",
        [info("x", shape)],
        [info("y", shape)],
        [numpy_helper.from_array(np.asarray(item), name) for name, item in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def deep(source: str, result: str, weights: str = "deep") -> onnx.NodeProto:
    attributes = {"group": CHANNELS, "pads": [1, 1, 1, 1]}
    return make("Conv", [source, weights], [result], **attributes)


def block(source: str, result: str, name: str) -> list[onnx.NodeProto]:
    """A block of a ConvNeXt: normalized and multiplied with channels last, added to the image."""
    return [
        deep(source, f"{name}c"),
        make("Transpose", [f"{name}c"], [f"{name}t"], perm=[0, 2, 3, 1]),
        make("LayerNormalization", [f"{name}t", "scale", "bias"], [f"{name}l"]),
        make("MatMul", [f"{name}l", "wide"], [f"{name}w"]),
        make("Gelu", [f"{name}w"], [f"{name}g"]),
        make("MatMul", [f"{name}g", "back"], [f"{name}b"]),
        make("Mul", [f"{name}b", "gamma"], [f"{name}m"]),
        make("Transpose", [f"{name}m"], [f"{name}f"], perm=[0, 3, 1, 2]),
        make("Add", [source, f"{name}f"], [result]),
    ]


def convnext() -> onnx.ModelProto:
    stem, head = make("Conv", ["x", "full"], ["s"]), make("Conv", ["two", "full"], ["y"])
    return model_of([stem, *block("s", "one", "a"), *block("one", "two", "b"), head])


def encoder() -> onnx.ModelProto:
    """As SegFormer: rows of pixels, their normalization, and a convolution between products."""
    return model_of(
        [
            make("Conv", ["x", "full"], ["c"]),
            make("Reshape", ["c", "rows"], ["r"], allowzero=1),
            make("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
            make("LayerNormalization", ["t", "scale", "bias"], ["l"]),
            make("Transpose", ["l"], ["t2"], perm=[0, 2, 1]),
            make("Reshape", ["t2", "image"], ["i"]),
            deep("i", "c2"),
            make("Reshape", ["c2", "rows"], ["r2"]),
            make("Transpose", ["r2"], ["t3"], perm=[0, 2, 1]),
            make("Gelu", ["t3"], ["g"]),
            make("Add", ["g", "l"], ["s"]),
            make("Transpose", ["s"], ["t4"], perm=[0, 2, 1]),
            make("Reshape", ["t4", "image"], ["i2"]),
            deep("i2", "y", "deep2"),
        ]
    )


def channels_last(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` with each convolution as an Einsum of channels last, between Transposes."""
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    nodes: list[onnx.NodeProto] = []
    for index, node in enumerate(changed.graph.node):
        if node.op_type != "Conv":
            nodes.append(node)
            continue
        names = [f"nhwc{index}{part}" for part in "ab"]
        nodes += [
            make("Transpose", [node.input[0]], [names[0]], perm=[0, 2, 3, 1]),
            make("Einsum", [names[0], "square"], [names[1]], equation="nhwc,cd->nhwd"),
            make("Transpose", [names[1]], [node.output[0]], perm=[0, 3, 1, 2]),
        ]
    del changed.graph.node[:], changed.graph.value_info[:]
    changed.graph.node.extend(nodes)
    square = np.eye(CHANNELS, dtype=np.float32)
    changed.graph.initializer.append(numpy_helper.from_array(square, "square"))
    return changed


def optimized(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "optimized.onnx")


def fused_of(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, int]]:
    fused, records = fuse(model, Path())
    (own,) = [dict(one.matched) for one in records if one.name == NAME] or [{}]
    return fused, own


# One is of the input, and one of the output.
@pytest.mark.parametrize(("network", "before", "after"), [(convnext, 2, 2), (encoder, 10, 2)])
def test_with_channels_last_no_transpose_is_left_inside(
    network: Callable[[], onnx.ModelProto], before: int, after: int, tmp_path: Path
) -> None:
    model = network()
    left = [
        ops(optimized(channels_last(one), tmp_path)).count("Transpose")
        for one in (model, fused_of(model)[0])
    ]
    assert left == [before, after]


MOVED = {
    "a factor": make("Mul", ["c", "column"], ["a"]),
    "a sum": make("Add", ["column", "c"], ["a"]),
    "a bound": make("Clip", ["c", "", "one"], ["a"]),
    "Relu": make("Relu", ["c"], ["a"]),
    "Sigmoid": make("Sigmoid", ["c"], ["a"]),
    "HardSwish": make("HardSwish", ["c"], ["a"]),
    "the standard Gelu": make("Gelu", ["c"], ["a"]),
    "Gelu": make("Gelu", ["c"], ["a"], domain=MICROSOFT),
    "FastGelu": make("FastGelu", ["c"], ["a"], domain=MICROSOFT),
}


@pytest.mark.parametrize("name", MOVED)
def test_between_convolutions_transposes_meet_without_us(name: str, tmp_path: Path) -> None:
    """Why no pass moves them: ONNX Runtime does, also through what a fusion writes here."""
    first, last = make("Conv", ["x", "full"], ["c"]), make("Conv", ["a", "full"], ["y"])
    column = np.ones((CHANNELS, 1, 1), np.float32)
    model = model_of([first, MOVED[name], last], column=column, one=np.float32(1))
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    # One is of the input, and one of the output.
    assert ops(optimized(channels_last(model), tmp_path)).count("Transpose") == 2


def test_with_channels_first_none_is_added(tmp_path: Path) -> None:
    model = encoder()
    fused, matched = fused_of(model)
    assert matched == {"to rows": 2, "to images": 2}
    before, after = (ops(optimized(one, tmp_path)).count("Transpose") for one in (model, fused))
    assert after <= before
    for batch in (0, 1, 3):
        x = np.random.default_rng(batch).standard_normal((batch, CHANNELS, HEIGHT, WIDTH))
        check_same(model, fused, x=x.astype(np.float32))


@pytest.mark.parametrize("unknown", [2, 3])
def test_one_unknown_size_of_an_image_is_found_from_the_others(unknown: int) -> None:
    model = encoder()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[unknown].dim_param = "free"
    for tensor in model.graph.initializer:
        if tensor.name in ("rows", "image"):
            sizes = [0, CHANNELS, HEIGHT, WIDTH]
            sizes[unknown] = -1
            wanted = sizes if tensor.name == "image" else [0, CHANNELS, -1]
            tensor.CopyFrom(numpy_helper.from_array(np.array(wanted), tensor.name))
    for node in model.graph.node:
        if node.op_type == "Reshape":
            # A 0 keeps the batch.
            del node.attribute[:]
    fused, matched = fused_of(model)
    assert matched == {"to rows": 2, "to images": 2}
    shape = [2, CHANNELS, HEIGHT, WIDTH]
    shape[unknown] = 9
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    check_same(model, fused, x=x)


@pytest.mark.parametrize("allowzero", [0, 1])
def test_images_of_any_size_keep_the_shapes_that_the_graph_computes(allowzero: int) -> None:
    """As exporters write `flatten(2)` and `view` with sizes that are not known."""
    model = encoder()
    for value in (*model.graph.input, *model.graph.output):
        for axis, name in ((2, "height"), (3, "width")):
            value.type.tensor_type.shape.dim[axis].dim_param = name
    sizes = [
        make("Shape", ["x"], ["batch"], end=1),
        make("Shape", ["x"], ["sides"], start=2),
        make("ReduceProd", ["sides"], ["pixels"], keepdims=1),
        make("Concat", ["batch", "channels", "pixels"], ["rows"], axis=0),
        make("Concat", ["batch", "channels", "sides"], ["image"], axis=0),
    ]
    nodes = [*sizes, *model.graph.node]
    for node in nodes:
        if node.op_type == "Reshape":
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("allowzero", allowzero))
    kept = [each for each in model.graph.initializer if each.name not in ("rows", "image")]
    channels = numpy_helper.from_array(np.array([CHANNELS]), "channels")
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend([*kept, channels])
    for name, shape in (
        ("r", ["n", CHANNELS, "pixels"]),
        ("i", ["n", CHANNELS, "height", "width"]),
        ("c2", ["n", CHANNELS, "height", "width"]),
        ("r2", ["n", CHANNELS, "pixels"]),
        ("i2", ["n", CHANNELS, "height", "width"]),
    ):
        model.graph.value_info.append(info(name, shape))
    fused, matched = fused_of(model)
    assert matched == {"to rows": 2, "to images": 2}
    # Without an image as well, which such graphs take.
    for batch, height, width in ((1, 1, 1), (2, 3, 5), (0, 3, 5)):
        x = np.random.default_rng(1).standard_normal((batch, CHANNELS, height, width))
        check_same(model, fused, x=x.astype(np.float32))


def test_a_size_that_a_computed_shape_keeps_in_its_place_is_left() -> None:
    """A 0 in it keeps the second size of what is reshaped, which would be another one."""
    model = between(
        make("Shape", ["c"], ["sides"], start=2),
        make("ReduceProd", ["sides"], ["pixels"], keepdims=1),
        make("Concat", ["kept", "pixels"], ["shape"], axis=0),
        make("Reshape", ["c", "shape"], ["r"]),
        make("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        make("Softmax", ["t"], ["f"]),
        make("Transpose", ["f"], ["b"], perm=[0, 2, 1]),
        make("Shape", ["c"], ["whole"]),
        make("Reshape", ["b", "whole"], ["y"]),
        kept=np.array([0, 0]),
    )
    for value in (*model.graph.input, *model.graph.output):
        for axis, name in ((2, "height"), (3, "width")):
            value.type.tensor_type.shape.dim[axis].dim_param = name
    model.graph.value_info.append(info("r", ["n", CHANNELS, "pixels"]))
    fused, matched = fused_of(model)
    assert not matched.get("to rows")
    x = np.random.default_rng(1).standard_normal((2, CHANNELS, 3, 5)).astype(np.float32)
    check_same(model, fused, x=x)


def between(*nodes: onnx.NodeProto, **constants: Any) -> onnx.ModelProto:
    return model_of([make("Conv", ["x", "full"], ["c"]), *nodes], **constants)


LEFT = {
    "other sizes": between(
        make("Reshape", ["c", "half"], ["r"]),
        make("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        make("Reshape", ["t", "image"], ["y"]),
        half=np.array([-1, CHANNELS // 2, 2 * PIXELS]),
    ),
    "batch and channels are merged": between(
        make("Reshape", ["c", "merged"], ["r"]),
        make("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        make("Reshape", ["t", "image"], ["y"]),
        merged=np.array([1, -1, PIXELS]),
    ),
    "read before it is transposed": between(
        make("Reshape", ["c", "rows"], ["r"]),
        make("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        make("MatMul", ["t", "r"], ["p"]),
        make("MatMul", ["r", "p"], ["q"]),
        make("Reshape", ["q", "image"], ["y"]),
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_image_of_rows_is_left(name: str) -> None:
    model = LEFT[name]
    fused, matched = fused_of(model)
    assert not matched
    x = np.random.default_rng(1).standard_normal((2, CHANNELS, HEIGHT, WIDTH)).astype(np.float32)
    check_same(model, fused, x=x)


def test_a_graph_without_convolutions_is_left() -> None:
    nodes = [
        make("Reshape", ["x", "rows"], ["r"]),
        make("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        make("LayerNormalization", ["t", "scale", "bias"], ["l"]),
        make("Transpose", ["l"], ["t2"], perm=[0, 2, 1]),
        make("Reshape", ["t2", "image"], ["y"]),
    ]
    assert fused_of(model_of(nodes))[1] == {}
