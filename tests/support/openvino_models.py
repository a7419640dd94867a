"""Small models for a provider that compiles: supported and unsupported operators."""

from __future__ import annotations

from functools import partial

import model_parts
import numpy as np
import onnx
from model_parts import constant, info
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"

FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
WIDTH = 32
ROWS = 4

# With ONNX Runtime's own domain.
model_of = partial(model_parts.model_of, opset=18, ir_version=9, domains=(MICROSOFT,))


def weight(name: str, *shape: int, seed: int = 0) -> onnx.TensorProto:
    values = np.random.default_rng((seed, len(name))).standard_normal(shape) / np.sqrt(shape[0])
    return numpy_helper.from_array(values.astype(np.float32), name)


def refused(read: str, output: str, name: str) -> onnx.NodeProto:
    """An operator of ONNX Runtime's own domain that OpenVINO lacks."""
    return helper.make_node("Trilu", [read], [output], name=name, domain=MICROSOFT)


def dense(read: str, weights: str, output: str) -> list[onnx.NodeProto]:
    """`tanh(read @ weights)`."""
    return [
        helper.make_node("MatMul", [read, weights], [f"{output}_m"], name=f"{output}_product"),
        helper.make_node("Tanh", [f"{output}_m"], [output], name=f"{output}_tanh"),
    ]


def plain(width: int = WIDTH, seed: int = 0) -> onnx.ModelProto:
    """Only supported operators: two dense layers over [batch, width]."""
    return model_of(
        [*dense("x", "first", "a"), *dense("a", "second", "y")],
        [info("x", ["batch", width])],
        [info("y", ["batch", width])],
        [weight("first", width, width, seed=seed), weight("second", width, width, seed=seed)],
    )


def divided(middle: int = 1) -> onnx.ModelProto:
    """Dense layers with `middle` refused operators between them, over [batch, ROWS, WIDTH]."""
    nodes, value = dense("x", "w0", "a0"), "a0"
    for index in range(middle):
        nodes.append(refused(value, f"t{index}", f"odd{index}"))
        nodes += dense(f"t{index}", f"w{index + 1}", f"a{index + 1}")
        value = f"a{index + 1}"
    shape = ["batch", ROWS, WIDTH]
    return model_of(
        nodes,
        [info("x", shape)],
        [info(value, shape)],
        [weight(f"w{index}", WIDTH, WIDTH, seed=index) for index in range(middle + 1)],
    )


def branching() -> onnx.ModelProto:
    """An If, by the sign of the sum, whose subgraphs read constants that nothing else reads."""
    then = helper.make_graph(
        [
            helper.make_node("MatMul", ["a", "only_then"], ["t_m"], name="then_product"),
            helper.make_node("Trilu", ["t_m"], ["t"], name="then_odd", domain="com.microsoft"),
        ],
        "then",
        [],
        [info("t", ["batch", ROWS, WIDTH])],
    )
    otherwise = helper.make_graph(
        [helper.make_node("Mul", ["a", "only_else"], ["e"], name="else_scale")],
        "else",
        [],
        [info("e", ["batch", ROWS, WIDTH])],
    )
    shape = ["batch", ROWS, WIDTH]
    return model_of(
        [
            *dense("x", "first", "a"),
            helper.make_node("ReduceSum", ["x"], ["total"], name="total", keepdims=0),
            helper.make_node("Greater", ["total", "zero"], ["positive"], name="positive"),
            helper.make_node(
                "If", ["positive"], ["c"], name="choice", then_branch=then, else_branch=otherwise
            ),
            *dense("c", "last", "y"),
        ],
        [info("x", shape)],
        [info("y", shape)],
        [
            weight("first", WIDTH, WIDTH),
            weight("only_then", WIDTH, WIDTH),
            weight("only_else", WIDTH),
            weight("last", WIDTH, WIDTH),
            constant("zero", np.float32(0)),
        ],
    )
