"""Graphs with one attention, standard or in single operators, and comparing their answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from model_parts import info
from onnx import TensorProto, helper, numpy_helper

HEADS, WIDTH = 2, 4
HIDDEN = HEADS * WIDTH
LOWEST = float(np.finfo(np.float32).min)


def attention(
    masks: list[onnx.ValueInfoProto],
    core: list[onnx.NodeProto],
    kind: int = TensorProto.FLOAT,
    **constants: Any,
) -> onnx.ModelProto:
    """Queries, keys and values of `x`, `core` from "q", "k" and "v" to "a", and heads joined."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    rng = np.random.default_rng(3)
    held: dict[str, Any] = {
        "split": np.array([0, 0, HEADS, WIDTH]),
        "join": np.array([0, 0, HIDDEN]),
    }
    nodes = []
    for name in "qkv":
        held[f"w{name}"] = rng.standard_normal((HIDDEN, HIDDEN)).astype(dtype)
        held[f"b{name}"] = rng.standard_normal(HIDDEN).astype(dtype)
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}1"]),
            helper.make_node("Add", [f"b{name}", f"{name}1"], [f"{name}2"]),
            helper.make_node("Reshape", [f"{name}2", "split"], [f"{name}3"]),
            helper.make_node("Transpose", [f"{name}3"], [name], perm=[0, 2, 1, 3]),
        ]
    nodes += [
        *core,
        helper.make_node("Transpose", ["a"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "join"], ["y"]),
    ]
    held |= constants
    graph = helper.make_graph(
        nodes,
        "attention",
        [info("x", ["batch", "length", HIDDEN], kind), *masks],
        [info("y", ["batch", "length", HIDDEN], kind)],
        [numpy_helper.from_array(np.asarray(item), name) for name, item in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def in_order(nodes: Iterable[onnx.NodeProto | None], given: set[str]) -> list[onnx.NodeProto]:
    """The nodes that are not None, each after those whose results it reads."""
    ordered: list[onnx.NodeProto] = []
    pending = [node for node in nodes if node is not None]
    names = set(given)
    while pending:
        ready = [node for node in pending if all(name in names for name in node.input if name)]
        assert ready, [list(node.output) for node in pending]
        ordered += ready
        names |= {name for node in ready for name in node.output}
        pending = [node for node in pending if node not in ready]
    return ordered


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def check_same(model: onnx.ModelProto, fused: onnx.ModelProto, **given: Any) -> None:
    found, expected = (
        ort.InferenceSession(item.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, given
        )
        for item in (fused, model)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def tokens(batch: int = 2, length: int = 3) -> Any:
    return np.random.default_rng(5).standard_normal((batch, length, HIDDEN)).astype(np.float32)


BOOLEANS = {
    "all": np.ones((2, 1, 3, 3), bool),
    "padded": np.array([[1, 1, 0], [0, 1, 1]], bool).reshape(2, 1, 1, 3).repeat(3, 2),
    "causal": np.tril(np.ones((2, 1, 3, 3), bool)),
    "rows without any": np.array([[0, 0, 0], [1, 0, 1], [0, 0, 0]], bool).reshape(1, 1, 3, 3),
    "nothing": np.zeros((2, 1, 3, 3), bool),
}


def decomposed(*masked: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Attention in single operators; `masked` make "m" from the scores "s"."""
    return [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["s0"]),
        helper.make_node("Div", ["s0", "root"], ["s"]),
        *masked,
        helper.make_node("Softmax", ["m" if masked else "s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["a"]),
    ]


def opset(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    model.opset_import[0].version = version
    return model


ROOT: dict[str, Any] = {"root": np.float32(2)}
CONDITION = info("c", ["b", 1, "length", "length"], TensorProto.BOOL)
