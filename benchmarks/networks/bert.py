"""A BERT encoder, written node by node as exporters do: exact-erf GELU, opset 17.

Architecture: J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for
Language Understanding" (2018), without the pooler.  Weights are normal with deviation 0.02, as
initialized in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from onnx import TensorProto

from benchmarks.networks.encoder import EncoderGraph, Plant, attention, gelu

POSITIONS = 512


def write_bert(
    path: Path,
    *,
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int,
    seed: int,
    plants: Sequence[Plant] = (),
) -> None:
    """Write a model of int64 inputs [batch, sequence] to `last_hidden_state`, weights inline."""
    graph = EncoderGraph(seed, plants)
    mask = _mask(graph)
    value = _embeddings(graph, hidden, vocabulary)
    shape = graph.constant("heads.shape", np.array([0, 0, heads, hidden // heads], np.int64))
    merged = graph.constant("merged.shape", np.array([0, 0, hidden], np.int64))
    scale = graph.constant("scale", np.array(math.sqrt(hidden // heads), np.float32))
    for index in range(layers):
        name = f"layer.{index}"
        attended = attention(graph, value, name, hidden, shape, merged, scale, mask)
        total = graph.node("Add", [attended, value], f"{name}.attention.residual")
        value = graph.normalized(total, f"{name}.attention.norm", hidden)
        inner = gelu(graph, graph.dense(value, f"{name}.up", hidden, 4 * hidden), f"{name}.gelu")
        outer = graph.dense(inner, f"{name}.down", 4 * hidden, hidden)
        value = graph.normalized(
            graph.node("Add", [outer, value], f"{name}.residual"), name, hidden
        )
    graph.node("Identity", [value], "last_hidden_state")
    names = ("input_ids", "attention_mask", "token_type_ids")
    graph.save(
        path,
        "bert",
        {name: (TensorProto.INT64, ["batch", "sequence"]) for name in names},
        ("last_hidden_state", ["batch", "sequence", hidden]),
    )


def _mask(graph: EncoderGraph) -> str:
    """[batch, 1, 1, sequence]: 0 where attended, the minimum float elsewhere."""
    axes = graph.constant("mask.axes", np.array([1, 2], np.int64))
    wide = graph.node("Unsqueeze", ["attention_mask", axes], "mask.wide")
    floats = graph.node("Cast", [wide], "mask.float", to=TensorProto.FLOAT)
    one = graph.constant("one", np.array(1.0, np.float32))
    least = graph.constant("mask.least", np.array(np.finfo(np.float32).min, np.float32))
    return graph.node("Mul", [graph.node("Sub", [one, floats], "mask.inverse"), least], "mask")


def _embeddings(graph: EncoderGraph, hidden: int, vocabulary: int) -> str:
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
