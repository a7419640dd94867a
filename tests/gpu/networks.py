"""Networks for the GPU tests: random weights, made here."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def residual(opset: int, dtype: type = np.float16, width: int = 64, blocks: int = 8) -> bytes:
    """A residual CNN of `blocks` blocks with MaxPool in front, as torch exports ResNets."""
    rng = np.random.default_rng(0)
    kind = TensorProto.FLOAT16 if dtype is np.float16 else TensorProto.FLOAT
    constants: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def weight(name: str, *shape: int) -> str:
        fan = np.prod(shape[1:])
        values = (rng.standard_normal(shape) / np.sqrt(fan)).astype(dtype)
        constants.append(numpy_helper.from_array(values, name))
        return name

    def node(op: str, inputs: list[str], **attributes: object) -> str:
        output = f"v{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [output], name=f"{op}{len(nodes)}", **attributes))
        return output

    first = weight("w", width, 3, 7, 7)
    value = node("Conv", ["image", first], pads=[3, 3, 3, 3], strides=[2, 2])
    value = node("MaxPool", [value], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for index in range(blocks):
        kernel = weight(f"a{index}", width, width, 3, 3)
        inner = node("Relu", [node("Conv", [value, kernel], pads=[1, 1, 1, 1])])
        kernel = weight(f"b{index}", width, width, 3, 3)
        inner = node("Conv", [inner, kernel], pads=[1, 1, 1, 1])
        value = node("Relu", [node("Add", [inner, value])])
    value = node("Flatten", [node("GlobalAveragePool", [value])])
    value = node("Gemm", [value, weight("g", 10, width)], transB=1)
    nodes[-1].output[0] = "logits"
    graph = helper.make_graph(
        nodes,
        "residual",
        [helper.make_tensor_value_info("image", kind, ["batch", 3, 224, 224])],
        [helper.make_tensor_value_info("logits", kind, ["batch", 10])],
        constants,
    )
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return model.SerializeToString()


def mobile(dtype: type = np.float16, width: int = 32, blocks: int = 3) -> bytes:
    """Inverted residuals with depthwise convolutions and squeeze-and-excite, as MobileNetV3 has."""
    rng = np.random.default_rng(0)
    kind = TensorProto.FLOAT16 if dtype is np.float16 else TensorProto.FLOAT
    constants: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def node(op: str, *inputs: str, **attributes: object) -> str:
        output = f"v{len(nodes)}"
        nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def weight(*shape: int) -> str:
        values = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        constants.append(numpy_helper.from_array(values.astype(dtype), f"w{len(constants)}"))
        return constants[-1].name

    def conv(
        x: str, out: int, within: int, kernel: int = 1, group: int = 1, stride: int = 1
    ) -> str:
        return node(
            "Conv",
            x,
            weight(out, within // group, kernel, kernel),
            weight(out),
            group=group,
            pads=[kernel // 2] * 4,
            strides=[stride] * 2,
        )

    value = node("HardSwish", conv("image", width, 3, 3, stride=2))
    wide = 4 * width
    for index in range(blocks):
        inner = node("HardSwish", conv(value, wide, width))
        inner = node("HardSwish", conv(inner, wide, wide, 3 + 2 * (index % 2), wide))
        pooled = node("GlobalAveragePool", inner)
        gate = node("Relu", conv(pooled, wide // 4, wide))
        gate = node("HardSigmoid", conv(gate, wide, wide // 4))
        value = node("Add", conv(node("Mul", inner, gate), width, wide), value)
    value = node("Flatten", node("GlobalAveragePool", value))
    value = node("Gemm", value, weight(10, width), transB=1)
    nodes[-1].output[0] = "logits"
    graph = helper.make_graph(
        nodes,
        "mobile",
        [helper.make_tensor_value_info("image", kind, ["batch", 3, 224, 224])],
        [helper.make_tensor_value_info("logits", kind, ["batch", 10])],
        constants,
    )
    imports = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def windows() -> bytes:
    """float32 [batch, height, 8], rolled by 3 rows, as Softmax in windows of 4 rows.

    Sizes are computed on the CPU; and ONNX Runtime copies the addresses of what Concat joins to the
    GPU from page-locked memory, in captured graphs too, if they are of several lengths.
    """
    values = {"i0": [0], "i1": [1], "i3": [3], "four": [4], "eight": [8], "end": [2**31]}
    constants = [
        numpy_helper.from_array(np.array(value, np.int64), name) for name, value in values.items()
    ]
    constants.append(numpy_helper.from_array(np.linspace(-1, 1, 8, dtype=np.float32), "scale"))
    nodes = [
        helper.make_node("Slice", ["x", "i3", "end", "i1"], ["below"]),
        helper.make_node("Slice", ["x", "i0", "i3", "i1"], ["above"]),
        helper.make_node("Concat", ["below", "above"], ["rolled"], axis=1),
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "i0"], ["batch"]),
        helper.make_node("Gather", ["sizes", "i1"], ["height"]),
        helper.make_node("Div", ["height", "four"], ["rows"]),
        helper.make_node("Concat", ["batch", "rows", "four", "eight"], ["split"], axis=0),
        helper.make_node("Reshape", ["rolled", "split"], ["parts"]),
        helper.make_node("Softmax", ["parts"], ["weights"], axis=2),
        helper.make_node("Expand", ["scale", "split"], ["wide"]),
        helper.make_node("Mul", ["weights", "wide"], ["scaled"]),
        helper.make_node("Reshape", ["scaled", "sizes"], ["y"]),
    ]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "height", 8])
        for name in ("x", "y")
    ]
    graph = helper.make_graph(nodes, "windows", infos[:1], infos[1:], constants)
    imports = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def either() -> bytes:
    """Control flow: float32 [n] to its ReLU where the sum is positive, else negated."""

    def branch(op: str) -> onnx.GraphProto:
        output = helper.make_tensor_value_info(f"{op}_y", TensorProto.FLOAT, ["n"])
        return helper.make_graph([helper.make_node(op, ["x"], [output.name])], op, [], [output])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node(
            "If", ["positive"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg")
        ),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    zero = numpy_helper.from_array(np.float32(0), "zero")
    graph = helper.make_graph(nodes, "either", values[:1], values[1:], [zero])
    imports = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def partly_on_the_cpu() -> bytes:
    """float32 [n, 8] to its ReLU, Asinh and Exp, of which CUDA has no kernel for the second."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Asinh", ["a"], ["b"]),
        helper.make_node("Exp", ["b"], ["y"]),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in ("x", "y")
    ]
    graph = helper.make_graph(nodes, "partly", values[:1], values[1:])
    imports = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def rows_and_columns(width: int) -> bytes:
    """float32 [batch, seq, width] to its Tanh, and to the transposed [batch, width, seq]."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["columns"], perm=[0, 2, 1]),
    ]
    shapes = {"x": (1, 2), "rows": (1, 2), "columns": (2, 1)}
    sizes = ("batch", "seq", width)
    values = [
        helper.make_tensor_value_info(
            name, TensorProto.FLOAT, ["batch", *(sizes[axis] for axis in axes)]
        )
        for name, axes in shapes.items()
    ]
    graph = helper.make_graph(nodes, "rows", values[:1], values[1:])
    imports = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def attention(width: int, heads: int) -> bytes:
    """ONNX Runtime's fused attention of rows [batch, seq, width] with themselves."""
    sizes = ["batch", "seq", width]
    node = helper.make_node(
        "MultiHeadAttention", ["x", "x", "x"], ["y"], domain="com.microsoft", num_heads=heads
    )
    graph = helper.make_graph(
        [node],
        "attention",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, sizes)],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return model.SerializeToString()
