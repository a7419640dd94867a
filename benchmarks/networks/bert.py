"""A BERT encoder, written node by node as exporters do: exact-erf GELU, opset 17.

Architecture: J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for
Language Understanding" (2018), without the pooler.  Weights are normal with deviation 0.02, as
initialized in the paper.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

POSITIONS = 512


class _Graph:
    """Nodes and weights under construction; each method returns the name of its output."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._rng = np.random.default_rng(seed)

    def node(self, op_type: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, [name], name, **attributes))
        return name

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def random_weight(self, name: str, *shape: int) -> str:
        return self.constant(name, self._rng.standard_normal(shape, np.float32) * np.float32(0.02))

    def dense(self, value: str, name: str, inner: int, outer: int) -> str:
        product = self.node(
            "MatMul", [value, self.random_weight(f"{name}.weight", inner, outer)], f"{name}.matmul"
        )
        return self.node("Add", [self.random_weight(f"{name}.bias", outer), product], f"{name}.add")

    def normalized(self, value: str, name: str, width: int) -> str:
        scale = self.constant(f"{name}.scale", np.ones(width, np.float32))
        bias = self.random_weight(f"{name}.bias", width)
        return self.node("LayerNormalization", [value, scale, bias], name, axis=-1, epsilon=1e-12)


def write_bert(
    path: Path, *, layers: int, hidden: int, heads: int, vocabulary: int, seed: int
) -> None:
    """Write a model of int64 inputs [batch, sequence] to `last_hidden_state`, weights inline."""
    graph = _Graph(seed)
    mask = _mask(graph)
    value = _embeddings(graph, hidden, vocabulary)
    shape = graph.constant("heads.shape", np.array([0, 0, heads, hidden // heads], np.int64))
    merged = graph.constant("merged.shape", np.array([0, 0, hidden], np.int64))
    scale = graph.constant("scale", np.array(math.sqrt(hidden // heads), np.float32))
    for index in range(layers):
        name = f"layer.{index}"
        attended = _attention(graph, value, name, hidden, shape, merged, scale, mask)
        total = graph.node("Add", [attended, value], f"{name}.attention.residual")
        value = graph.normalized(total, f"{name}.attention.norm", hidden)
        inner = _gelu(graph, graph.dense(value, f"{name}.up", hidden, 4 * hidden), f"{name}.gelu")
        outer = graph.dense(inner, f"{name}.down", 4 * hidden, hidden)
        value = graph.normalized(
            graph.node("Add", [outer, value], f"{name}.residual"), name, hidden
        )
    graph.node("Identity", [value], "last_hidden_state")
    names = ("input_ids", "attention_mask", "token_type_ids")
    made = helper.make_graph(
        graph.nodes,
        "bert",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
            for name in names
        ],
        [
            helper.make_tensor_value_info(
                "last_hidden_state", TensorProto.FLOAT, ["batch", "sequence", hidden]
            )
        ],
        graph.weights,
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=8), path)


def _mask(graph: _Graph) -> str:
    """[batch, 1, 1, sequence]: 0 where attended, the minimum float elsewhere."""
    axes = graph.constant("mask.axes", np.array([1, 2], np.int64))
    wide = graph.node("Unsqueeze", ["attention_mask", axes], "mask.wide")
    floats = graph.node("Cast", [wide], "mask.float", to=TensorProto.FLOAT)
    one = graph.constant("one", np.array(1.0, np.float32))
    least = graph.constant("mask.least", np.array(np.finfo(np.float32).min, np.float32))
    return graph.node("Mul", [graph.node("Sub", [one, floats], "mask.inverse"), least], "mask")


def _embeddings(graph: _Graph, hidden: int, vocabulary: int) -> str:
    words = graph.node(
        "Gather", [graph.random_weight("words", vocabulary, hidden), "input_ids"], "word"
    )
    types = graph.node(
        "Gather", [graph.random_weight("types", 2, hidden), "token_type_ids"], "type"
    )
    ids = graph.constant("position.ids", np.arange(POSITIONS, dtype=np.int64)[None, :])
    sizes = graph.node("Shape", ["input_ids"], "sizes")
    bounds = {n: graph.constant(f"const.{n}", np.array([n], np.int64)) for n in (0, 1, 2)}
    length = graph.node("Slice", [sizes, bounds[1], bounds[2], bounds[0]], "length")
    used = graph.node("Slice", [ids, bounds[0], length, bounds[1]], "position.used")
    table = graph.random_weight("positions", POSITIONS, hidden)
    positions = graph.node("Gather", [table, used], "position")
    total = graph.node("Add", [graph.node("Add", [words, types], "word.type"), positions], "sum")
    return graph.normalized(total, "embeddings", hidden)


def _attention(
    graph: _Graph,
    value: str,
    name: str,
    hidden: int,
    shape: str,
    merged: str,
    scale: str,
    mask: str,
) -> str:
    def heads(kind: str, order: list[int]) -> str:
        projected = graph.dense(value, f"{name}.{kind}", hidden, hidden)
        split = graph.node("Reshape", [projected, shape], f"{name}.{kind}.split")
        return graph.node("Transpose", [split], f"{name}.{kind}.heads", perm=order)

    query, key = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1])
    scores = graph.node("MatMul", [query, key], f"{name}.scores")
    scaled = graph.node("Div", [scores, scale], f"{name}.scaled")
    masked = graph.node("Add", [scaled, mask], f"{name}.masked")
    shares = graph.node("Softmax", [masked], f"{name}.softmax", axis=-1)
    mixed = graph.node("MatMul", [shares, heads("value", [0, 2, 1, 3])], f"{name}.mixed")
    joined = graph.node("Transpose", [mixed], f"{name}.joined", perm=[0, 2, 1, 3])
    flat = graph.node("Reshape", [joined, merged], f"{name}.flat")
    return graph.dense(flat, f"{name}.out", hidden, hidden)


def _gelu(graph: _Graph, value: str, name: str) -> str:
    """x * (1 + erf(x / sqrt(2))) / 2."""
    root = graph.constant(f"{name}.root", np.array(math.sqrt(2.0), np.float32))
    half = graph.constant(f"{name}.half", np.array(0.5, np.float32))
    erf = graph.node("Erf", [graph.node("Div", [value, root], f"{name}.div")], f"{name}.erf")
    shifted = graph.node("Add", [erf, "one"], f"{name}.shifted")
    product = graph.node("Mul", [value, shifted], f"{name}.product")
    return graph.node("Mul", [product, half], name)
