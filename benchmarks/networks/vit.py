"""A vision transformer, written node by node as exporters do, opset 17.

Architecture: A. Dosovitskiy et al., "An Image Is Worth 16x16 Words" (2020): normalization comes
before attention and products, and the class token's last value is classified.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from onnx import TensorProto

from benchmarks.networks.encoder import EncoderGraph, Plant, attention, gelu

PATCH = 16


def write_vit(
    path: Path,
    *,
    layers: int,
    hidden: int,
    heads: int,
    size: int,
    classes: int,
    seed: int,
    plants: Sequence[Plant] = (),
) -> None:
    """Write a model of float32 `image` [batch, 3, size, size] to `logits` [batch, classes]."""
    graph = EncoderGraph(seed, plants)
    graph.constant("one", np.array(1.0, np.float32))
    shape = graph.constant("heads.shape", np.array([0, 0, heads, hidden // heads], np.int64))
    merged = graph.constant("merged.shape", np.array([0, 0, hidden], np.int64))
    scale = graph.constant("scale", np.array(math.sqrt(hidden // heads), np.float32))
    value = _patches(graph, hidden, (size // PATCH) ** 2)
    for index in range(layers):
        name = f"layer.{index}"
        before = graph.normalized(value, f"{name}.before", hidden)
        attended = attention(graph, before, name, hidden, shape, merged, scale)
        value = graph.node("Add", [attended, value], f"{name}.attention.residual")
        inner = graph.normalized(value, f"{name}.norm", hidden)
        inner = gelu(graph, graph.dense(inner, f"{name}.up", hidden, 4 * hidden), f"{name}.gelu")
        outer = graph.dense(inner, f"{name}.down", 4 * hidden, hidden)
        value = graph.node("Add", [outer, value], f"{name}.residual")
    value = graph.normalized(value, "norm", hidden)
    first = graph.constant("first", np.array(0, np.int64))
    token = graph.node("Gather", [value, first], "class.last", axis=1)
    graph.node("Identity", [graph.dense(token, "head", hidden, classes)], "logits")
    graph.save(
        path,
        "vit",
        {"image": (TensorProto.FLOAT, ["batch", 3, size, size])},
        ("logits", ["batch", classes]),
    )


def _patches(graph: EncoderGraph, hidden: int, count: int) -> str:
    """[batch, 1 + count, hidden]: the class token, then the patches, with their positions."""
    kernel = graph.random_weight("patch.weight", hidden, 3, PATCH, PATCH)
    bias = graph.random_weight("patch.bias", hidden)
    cut = graph.node(
        "Conv",
        ["image", kernel, bias],
        "patch",
        kernel_shape=[PATCH, PATCH],
        strides=[PATCH, PATCH],
    )
    flat = graph.constant("patch.shape", np.array([0, hidden, count], np.int64))
    rows = graph.node("Reshape", [cut, flat], "patch.flat")
    patches = graph.node("Transpose", [rows], "patch.rows", perm=[0, 2, 1])
    sizes = graph.node("Shape", ["image"], "sizes")
    bounds = [graph.constant(f"const.{n}", np.array([n], np.int64)) for n in (0, 1)]
    batch = graph.node("Slice", [sizes, *bounds, bounds[0]], "batch.size")
    width = graph.constant("class.width", np.array([1, hidden], np.int64))
    shape = graph.node("Concat", [batch, width], "class.shape", axis=0)
    token = graph.node("Expand", [graph.random_weight("class", 1, 1, hidden), shape], "class.all")
    joined = graph.node("Concat", [token, patches], "tokens", axis=1)
    positions = graph.random_weight("positions", 1, 1 + count, hidden)
    return graph.node("Add", [joined, positions], "embeddings")
