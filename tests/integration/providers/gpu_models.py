"""Networks for providers that cannot run here: with operators that they support or lack."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from model_parts import info
from onnx import TensorProto, helper, numpy_helper
from openvino_models import dense, model_of, weight

# Narrow boundaries around products that are worth the transfers, at BATCH rows.
NARROW, WIDE, BATCH = 64, 1024, 1024


def layers(
    read: str, output: str, seed: int
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Dense layers NARROW to WIDE to WIDE to NARROW, with their six nodes and three matrices."""
    nodes: list[onnx.NodeProto] = []
    matrices: list[onnx.TensorProto] = []
    value = read
    sizes = ((NARROW, WIDE), (WIDE, WIDE), (WIDE, NARROW))
    for index, size in enumerate(sizes):
        result = output if index == len(sizes) - 1 else f"{output}{index}"
        matrices.append(weight(f"w_{result}", *size, seed=seed + index))
        nodes += dense(value, f"w_{result}", result)
        value = result
    return nodes, matrices


def interrupted(middle: onnx.NodeProto) -> onnx.ModelProto:
    """Dense layers, `middle` from "before" to "after", and dense layers; over [batch, NARROW]."""
    first, one = layers("x", "before", 1)
    last, other = layers("after", "y", 7)
    shape = ["batch", NARROW]
    return model_of([*first, middle, *last], [info("x", shape)], [info("y", shape)], [*one, *other])


def unique() -> onnx.ModelProto:
    """Dense layers with Unique in the middle, which neither TensorRT nor CUDA supports."""
    return interrupted(helper.make_node("Unique", ["before"], ["after"], name="odd", axis=0))


def fused_gelu() -> onnx.ModelProto:
    """Dense layers around an operator of ONNX Runtime that CUDA has and TensorRT lacks."""
    return interrupted(
        helper.make_node("FastGelu", ["before"], ["after"], name="odd", domain="com.microsoft")
    )


def whole_numbers(size: int = 64) -> onnx.ModelProto:
    """A product of int32 matrices, for which ONNX Runtime has no CUDA kernel, and a float Tanh."""
    matrix = numpy_helper.from_array(
        np.random.default_rng(3).integers(-3, 4, (size, size)).astype(np.int32), "w"
    )
    return model_of(
        [
            helper.make_node("Mul", ["x", "scale"], ["scaled"], name="scaled"),
            helper.make_node("Cast", ["scaled"], ["whole"], name="to_whole", to=TensorProto.INT32),
            helper.make_node("MatMul", ["whole", "w"], ["product"], name="whole_product"),
            helper.make_node("Cast", ["product"], ["float"], name="to_float", to=TensorProto.FLOAT),
            helper.make_node("Tanh", ["float"], ["y"], name="squash"),
        ],
        [info("x", ["batch", size])],
        [info("y", ["batch", size])],
        [matrix, numpy_helper.from_array(np.float32(4), "scale")],
    )


def residual(
    opset: int, dtype: type = np.float16, width: int = 16, blocks: int = 2
) -> onnx.ModelProto:
    """A residual CNN over [batch, 3, 32, 32], MaxPool in front, as exporters write ResNets."""
    rng = np.random.default_rng(0)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    constants: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def kernel(name: str, *shape: int) -> str:
        values = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        constants.append(numpy_helper.from_array(values.astype(dtype), name))
        return name

    def node(op: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        name = output or f"{op.lower()}{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [name], name=f"node_{name}", **attributes))
        return name

    around = {"pads": [1, 1, 1, 1]}
    value = node("Conv", ["image", kernel("stem", width, 3, 3, 3)], **around)
    value = node("MaxPool", [value], "pooled", kernel_shape=[3, 3], strides=[2, 2], **around)
    for index in range(blocks):
        inner = node("Conv", [value, kernel(f"a{index}", width, width, 3, 3)], **around)
        inner = node("Relu", [inner])
        inner = node("Conv", [inner, kernel(f"b{index}", width, width, 3, 3)], **around)
        value = node("Relu", [node("Add", [inner, value])])
    value = node("Flatten", [node("GlobalAveragePool", [value])])
    node("Gemm", [value, kernel("head", 10, width)], "logits", transB=1)
    graph = helper.make_graph(
        nodes,
        "residual",
        [helper.make_tensor_value_info("image", kind, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("logits", kind, ["batch", 10])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


class _Decoder:
    """Nodes and weights of GPT-2 under construction; methods return the name of their output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._rng = np.random.default_rng(11)

    def node(self, op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def constant(self, name: str, value: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def random_weight(self, name: str, *shape: int) -> str:
        return self.constant(name, self._rng.standard_normal(shape, np.float32) * np.float32(0.02))

    def linear(self, value: str, name: str, inner: int, outer: int) -> str:
        product = self.node(
            "MatMul", [value, self.random_weight(f"{name}.w", inner, outer)], f"{name}.mm"
        )
        return self.node("Add", [product, self.random_weight(f"{name}.b", outer)], name)

    def normalized(self, value: str, name: str, width: int) -> str:
        ones = self.constant(f"{name}.scale", np.ones(width, np.float32))
        bias = self.random_weight(f"{name}.bias", width)
        return self.node("LayerNormalization", [value, ones, bias], name, axis=-1, epsilon=1e-5)


def gpt2(
    *, blocks: int, hidden: int, heads: int, vocabulary: int, positions: int = 1024
) -> onnx.ModelProto:
    """A GPT-2 decoder without a cache: ids [batch, sequence] to logits, tanh GELU, opset 17.

    Architecture: A. Radford et al., "Language Models are Unsupervised Multitask Learners" (2019).
    """
    net = _Decoder()
    words = net.random_weight("wte", vocabulary, hidden)
    for number in (0, 1, 2):
        net.constant(f"n{number}", np.array([number], np.int64))
    length = net.node("Slice", [net.node("Shape", ["ids"], "sizes"), "n1", "n2", "n0"], "length")
    every = net.constant("all.positions", np.arange(positions, dtype=np.int64))
    used = net.node("Slice", [every, "n0", length], "used")
    places = net.node("Gather", [net.random_weight("wpe", positions, hidden), used], "places")
    value = net.node("Add", [net.node("Gather", [words, "ids"], "words"), places], "embedded")
    rows, columns = (net.node("Unsqueeze", [used, f"n{axis}"], f"u{axis}") for axis in (1, 0))
    ahead = net.node("Less", [rows, columns], "ahead")
    net.constant("never", np.float32(-1e9))
    net.constant("zero", np.float32(0))
    net.node("Where", [ahead, "never", "zero"], "mask")
    net.constant("split", np.array([0, 0, heads, hidden // heads], np.int64))
    net.constant("thirds", np.array([hidden] * 3, np.int64))
    net.constant("merged", np.array([0, 0, hidden], np.int64))
    net.constant("scale", np.float32((hidden // heads) ** 0.5))
    for number, figure in (("half", 0.5), ("one", 1.0), ("cubic", 0.044715), ("root", 0.7978846)):
        net.constant(number, np.float32(figure))
    for index in range(blocks):
        value = _block(net, value, f"h{index}", hidden)
    value = net.normalized(value, "ln_f", hidden)
    net.node("MatMul", [value, net.node("Transpose", [words], "head", perm=[1, 0])], "logits")
    graph = helper.make_graph(
        net.nodes,
        "gpt2",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "sequence"])],
        [
            helper.make_tensor_value_info(
                "logits", TensorProto.FLOAT, ["batch", "sequence", vocabulary]
            )
        ],
        net.constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _block(net: _Decoder, value: str, name: str, hidden: int) -> str:
    normal = net.normalized(value, f"{name}.ln_1", hidden)
    both = net.linear(normal, f"{name}.c_attn", hidden, 3 * hidden)
    thirds = [f"{name}.{kind}" for kind in ("q", "k", "v")]
    net.nodes.append(helper.make_node("Split", [both, "thirds"], thirds, f"{name}.split", axis=-1))
    query, key, content = (
        net.node(
            "Transpose",
            [net.node("Reshape", [third, "split"], f"{third}.heads")],
            f"{third}.turned",
            perm=order,
        )
        for third, order in zip(thirds, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
    )
    scores = net.node("MatMul", [query, key], f"{name}.scores")
    scaled = net.node("Div", [scores, "scale"], f"{name}.scaled")
    masked = net.node("Add", [scaled, "mask"], f"{name}.masked")
    shares = net.node("Softmax", [masked], f"{name}.shares", axis=-1)
    mixed = net.node("MatMul", [shares, content], f"{name}.mixed")
    turned = net.node("Transpose", [mixed], f"{name}.back", perm=[0, 2, 1, 3])
    flat = net.node("Reshape", [turned, "merged"], f"{name}.flat")
    attended = net.linear(flat, f"{name}.c_proj", hidden, hidden)
    value = net.node("Add", [value, attended], f"{name}.residual")
    normal = net.normalized(value, f"{name}.ln_2", hidden)
    inner = _gelu(net, net.linear(normal, f"{name}.c_fc", hidden, 4 * hidden), f"{name}.gelu")
    outer = net.linear(inner, f"{name}.down", 4 * hidden, hidden)
    return net.node("Add", [value, outer], f"{name}.out")


def _gelu(net: _Decoder, value: str, name: str) -> str:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))."""
    cube = net.node("Mul", [net.node("Mul", [value, value], f"{name}.sq"), value], f"{name}.cu")
    bent = net.node("Mul", [cube, "cubic"], f"{name}.bent")
    total = net.node("Mul", [net.node("Add", [value, bent], f"{name}.sum"), "root"], f"{name}.r")
    shifted = net.node("Add", [net.node("Tanh", [total], f"{name}.tanh"), "one"], f"{name}.s")
    return net.node("Mul", [net.node("Mul", [value, "half"], f"{name}.h"), shifted], name)
