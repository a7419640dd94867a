"""One step of a Llama decoder, written node by node as exporters do, opset 17.

Architecture: H. Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023), with
as many heads of keys as of queries.  Weights are normal with deviation 0.02.  A call takes one
token, so nothing has to be masked.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto

from benchmarks.networks.encoder import EncoderGraph

_BASE = 10000.0


def write_llama(
    path: Path,
    *,
    layers: int,
    hidden: int,
    inner: int,
    heads: int,
    vocabulary: int,
    tied: bool,
    seed: int,
) -> None:
    """Write a model of int64 `input_ids` [batch, 1] and each layer's past to `logits` and presents.

    Past keys and values are float32 [batch, heads, past, hidden / heads].  With `tied` the head
    reads the table of embeddings, transposed.
    """
    graph = EncoderGraph(seed)
    width = hidden // heads
    table = graph.random_weight("embed_tokens.weight", vocabulary, hidden)
    value = graph.node("Gather", [table, "input_ids"], "embedding")
    turns = _rotation(graph, width)
    graph.constant("split", np.array([0, 1, heads, width], np.int64))
    graph.constant("merged", np.array([0, 1, hidden], np.int64))
    graph.constant("scale", np.array(width**-0.5, np.float32))
    for index in range(layers):
        name = f"layers.{index}"
        normal = _normalized(graph, value, f"{name}.input_layernorm", hidden)
        attended = _attention(graph, normal, index, hidden, turns)
        value = graph.node("Add", [value, attended], f"{name}.attention.residual")
        normal = _normalized(graph, value, f"{name}.post_attention_layernorm", hidden)
        gate = _dense(graph, normal, f"{name}.gate", hidden, inner)
        silu = graph.node(
            "Mul", [gate, graph.node("Sigmoid", [gate], f"{name}.sigmoid")], f"{name}.silu"
        )
        up = _dense(graph, normal, f"{name}.up", hidden, inner)
        product = graph.node("Mul", [silu, up], f"{name}.gated")
        down = _dense(graph, product, f"{name}.down", inner, hidden)
        value = graph.node("Add", [value, down], f"{name}.residual")
    last = _normalized(graph, value, "norm", hidden)
    if tied:
        turned = graph.node("Transpose", [table], "lm_head.transposed", perm=[1, 0])
        graph.node("MatMul", [last, turned], "logits")
    else:
        graph.node(
            "MatMul", [last, graph.random_weight("lm_head.weight", hidden, vocabulary)], "logits"
        )
    kinds = [f"{layer}.{kind}" for layer in range(layers) for kind in ("key", "value")]
    inputs: dict[str, tuple[int, list[int | str]]] = {
        "input_ids": (TensorProto.INT64, ["batch", 1])
    }
    for kind in kinds:
        shape: list[int | str] = ["batch", heads, "past", width]
        inputs[f"past_key_values.{kind}"] = (TensorProto.FLOAT, shape)
    graph.save(
        path,
        "llama",
        inputs,
        ("logits", ["batch", 1, vocabulary]),
        {f"present.{kind}": ["batch", heads, "total", width] for kind in kinds},
    )


def _dense(graph: EncoderGraph, value: str, name: str, inner: int, outer: int) -> str:
    weight = graph.random_weight(f"{name}.weight", inner, outer)
    return graph.node("MatMul", [value, weight], f"{name}.matmul")


def _normalized(graph: EncoderGraph, value: str, name: str, width: int) -> str:
    """Over the root of the mean square of the last axis."""
    two = graph.constant(f"{name}.two", np.array(2.0, np.float32))
    least = graph.constant(f"{name}.epsilon", np.array(1e-6, np.float32))
    weight = graph.constant(f"{name}.weight", np.ones(width, np.float32))
    square = graph.node("Pow", [value, two], f"{name}.square")
    mean = graph.node("ReduceMean", [square], f"{name}.mean", axes=[-1])
    root = graph.node("Sqrt", [graph.node("Add", [mean, least], f"{name}.more")], f"{name}.root")
    scaled = graph.node("Mul", [value, graph.node("Reciprocal", [root], f"{name}.r")], f"{name}.s")
    return graph.node("Mul", [weight, scaled], name)


def _rotation(graph: EncoderGraph, width: int) -> tuple[str, str]:
    """Cosine and sine [width] of the angles at the token's position, the length of the past."""
    inverse = _BASE ** -(np.arange(0, width, 2, dtype=np.float32) / width)
    angles = graph.constant("rotary.inverse", np.concatenate([inverse, inverse]))
    sizes = graph.node("Shape", ["past_key_values.0.key"], "past.shape", start=2, end=3)
    position = graph.node("Cast", [sizes], "position", to=TensorProto.FLOAT)
    turned = graph.node("Mul", [position, angles], "angles")
    bounds = {"start": 0, "middle": width // 2, "end": width, "last": -1}
    for name, at in bounds.items():
        graph.constant(f"rotary.{name}", np.array([at], np.int64))
    return graph.node("Cos", [turned], "cos"), graph.node("Sin", [turned], "sin")


def _rotated(graph: EncoderGraph, value: str, turns: tuple[str, str]) -> str:
    start, middle, end, last = (f"rotary.{name}" for name in ("start", "middle", "end", "last"))
    left = graph.node("Slice", [value, start, middle, last], f"{value}.left")
    right = graph.node("Slice", [value, middle, end, last], f"{value}.right")
    negative = graph.node("Neg", [right], f"{value}.negative")
    crossed = graph.node("Concat", [negative, left], f"{value}.crossed", axis=-1)
    along = graph.node("Mul", [value, turns[0]], f"{value}.cos")
    across = graph.node("Mul", [crossed, turns[1]], f"{value}.sin")
    return graph.node("Add", [along, across], f"{value}.rotated")


def _attention(
    graph: EncoderGraph, value: str, index: int, hidden: int, turns: tuple[str, str]
) -> str:
    """Self-attention of [batch, 1, hidden] over the past and itself."""
    name = f"layers.{index}.attention"

    def heads(kind: str) -> str:
        projected = _dense(graph, value, f"{name}.{kind}", hidden, hidden)
        split = graph.node("Reshape", [projected, "split"], f"{name}.{kind}.split")
        return graph.node("Transpose", [split], f"{name}.{kind}.heads", perm=[0, 2, 1, 3])

    def present(kind: str, made: str) -> str:
        past = f"past_key_values.{index}.{kind}"
        return graph.node("Concat", [past, made], f"present.{index}.{kind}", axis=2)

    query = _rotated(graph, heads("query"), turns)
    keys = present("key", _rotated(graph, heads("key"), turns))
    turned = graph.node("Transpose", [keys], f"{name}.keys", perm=[0, 1, 3, 2])
    scores = graph.node("MatMul", [query, turned], f"{name}.scores")
    scaled = graph.node("Mul", [scores, "scale"], f"{name}.scaled")
    shares = graph.node("Softmax", [scaled], f"{name}.softmax", axis=-1)
    mixed = graph.node("MatMul", [shares, present("value", heads("value"))], f"{name}.mixed")
    joined = graph.node("Transpose", [mixed], f"{name}.joined", perm=[0, 2, 1, 3])
    flat = graph.node("Reshape", [joined, "merged"], f"{name}.flat")
    return _dense(graph, flat, f"{name}.out", hidden, hidden)
