"""Operations and bytes of nodes, compared with counts by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from model_parts import info
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.partition.assignment import NodeCompute, Sizes, sizes_at, width_of
from aotc.session.inference import with_types

FLOAT = TensorProto.FLOAT


def one_node(
    op: str,
    inputs: Mapping[str, Sequence[int | str] | None],
    weights: Mapping[str, Sequence[int]],
    *,
    order: Sequence[str] = (),
    outputs: Sequence[str] = ("y",),
    domain: str = "",
    kind: int = FLOAT,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; weights are zeros of float32."""
    made = helper.make_node(
        op, list(order) or [*inputs, *weights], outputs, name="it", domain=domain, **attributes
    )
    graph = helper.make_graph(
        [made],
        "made",
        [info(name, shape, kind) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs if name],
        [numpy_helper.from_array(np.zeros(s, np.float32), name) for name, s in weights.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    opsets += [helper.make_opsetid(domain, 1)] if domain else []
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def cost(model: onnx.ModelProto, dims: Mapping[str, int] | None = None) -> NodeCompute:
    found = sizes_at(model, dims or {}).nodes["it"]
    assert found.known
    return found


def test_a_convolution() -> None:
    """1 x 8 x 6 x 6 outputs, each of 3 * 3 * 3 multiply-adds."""
    model = one_node("Conv", {"x": [1, 3, 8, 8]}, {"w": [8, 3, 3, 3]})
    assert cost(model) == NodeCompute(
        flops=2 * (8 * 6 * 6) * (3 * 3 * 3),
        bytes=4 * (3 * 8 * 8 + 8 * 3 * 3 * 3 + 8 * 6 * 6),
    )


def test_a_grouped_convolution_with_strides_and_a_bias() -> None:
    """Depthwise: 2 x 8 x 4 x 4 outputs, each of 1 * 3 * 3 multiply-adds."""
    model = one_node(
        "Conv",
        {"x": [2, 8, 8, 8]},
        {"w": [8, 1, 3, 3], "b": [8]},
        group=8,
        strides=[2, 2],
        pads=[1, 1, 1, 1],
    )
    assert cost(model) == NodeCompute(
        flops=2 * (2 * 8 * 4 * 4) * 9,
        bytes=4 * (2 * 8 * 8 * 8 + 8 * 9 + 8 + 2 * 8 * 4 * 4),
    )


def test_a_transposed_convolution() -> None:
    """Each of 1 x 4 x 5 x 5 inputs is multiplied into 6 * 3 * 3 outputs."""
    model = one_node("ConvTranspose", {"x": [1, 4, 5, 5]}, {"w": [4, 6, 3, 3]}, strides=[2, 2])
    assert cost(model) == NodeCompute(
        flops=2 * (4 * 5 * 5) * (6 * 3 * 3),
        bytes=4 * (4 * 5 * 5 + 4 * 6 * 9 + 6 * 11 * 11),
    )


def test_a_grouped_transposed_convolution() -> None:
    """4 channels in 2 groups, 3 outputs a group: an input is multiplied into 3 * 2 * 2."""
    model = one_node("ConvTranspose", {"x": [1, 4, 5, 5]}, {"w": [4, 3, 2, 2]}, group=2)
    assert cost(model).flops == 2 * (4 * 5 * 5) * (3 * 2 * 2)


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
def test_a_product_of_matrices(trans_a: int, trans_b: int) -> None:
    """5 x 7 times 7 x 11, however they are stored: 5 * 11 outputs of 7 multiply-adds."""
    model = one_node(
        "Gemm",
        {"x": [7, 5] if trans_a else [5, 7]},
        {"w": [11, 7] if trans_b else [7, 11], "b": [11]},
        transA=trans_a,
        transB=trans_b,
    )
    assert cost(model) == NodeCompute(
        flops=2 * 5 * 7 * 11, bytes=4 * (5 * 7 + 7 * 11 + 11 + 5 * 11)
    )


@pytest.mark.parametrize(
    ("left", "right", "multiply_adds"),
    [
        ([5, 7], [7, 11], 5 * 7 * 11),
        ([2, 3, 5, 7], [2, 3, 7, 11], 6 * 5 * 7 * 11),
        ([2, 1, 5, 7], [3, 7, 11], 6 * 5 * 7 * 11),
        ([7], [7, 11], 7 * 11),
        ([5, 7], [7], 5 * 7),
        ([7], [7], 7),
    ],
)
def test_batched_products(left: list[int], right: list[int], multiply_adds: int) -> None:
    model = one_node("MatMul", {"x": left, "z": right}, {})
    assert cost(model).flops == 2 * multiply_adds


@pytest.mark.parametrize(
    ("op", "gates", "directions"), [("LSTM", 4, 1), ("LSTM", 4, 2), ("GRU", 3, 2), ("RNN", 1, 1)]
)
def test_a_recurrence(op: str, gates: int, directions: int) -> None:
    """6 steps, batch 2: each gate of 5 units reads 3 inputs and 5 states, in every direction."""
    model = one_node(
        op,
        {"x": [6, 2, 3]},
        {"W": [directions, gates * 5, 3], "R": [directions, gates * 5, 5]},
        hidden_size=5,
        direction="bidirectional" if directions == 2 else "forward",
    )
    assert cost(model) == NodeCompute(
        flops=2 * 6 * 2 * directions * gates * 5 * (3 + 5),
        bytes=4 * (6 * 2 * 3 + directions * gates * 5 * (3 + 5) + 6 * directions * 2 * 5),
    )


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_an_elementwise_operator_counts_its_outputs(op: str) -> None:
    model = one_node(op, {"x": [4, 1, 3], "z": [5, 1]}, {})
    assert cost(model) == NodeCompute(flops=60, bytes=4 * (12 + 5 + 60))


def test_many_outputs_count_together() -> None:
    model = one_node("Split", {"x": [4, 6]}, {}, outputs=("y", "z"), axis=1, num_outputs=2)
    assert cost(model) == NodeCompute(flops=24, bytes=4 * 48)


def test_a_quantized_convolution() -> None:
    """QLinearConv has its weights fourth, after the input's scale and zero point."""
    made = helper.make_node(
        "QLinearConv", ["x", "s", "z", "w", "s", "z", "s", "z"], ["y"], name="it"
    )
    graph = helper.make_graph(
        [made],
        "made",
        [info("x", [1, 3, 8, 8], TensorProto.UINT8)],
        [onnx.ValueInfoProto(name="y")],
        [
            numpy_helper.from_array(np.float32(1), "s"),
            numpy_helper.from_array(np.uint8(0), "z"),
            numpy_helper.from_array(np.zeros((8, 3, 3, 3), np.uint8), "w"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert cost(model).flops == 2 * (8 * 6 * 6) * (3 * 3 * 3)


def test_named_dims_are_set() -> None:
    model = one_node("MatMul", {"x": ["batch", "seq", 7]}, {"w": [7, 11]})
    small, large = (sizes_at(model, {"batch": b, "seq": s}) for b, s in ((1, 2), (3, 100)))
    assert small.nodes["it"].flops == 2 * 2 * 7 * 11
    assert large.nodes["it"].flops == 2 * 300 * 7 * 11
    assert (small.shapes["y"], large.shapes["y"]) == ((1, 2, 11), (3, 100, 11))
    assert large.values == {"x": 4 * 300 * 7, "w": 4 * 77, "y": 4 * 300 * 11}


def test_a_dim_set_to_nothing_costs_nothing() -> None:
    model = one_node("MatMul", {"x": ["n", 7]}, {"w": [7, 11]})
    assert cost(model, {"n": 0}) == NodeCompute(flops=0, bytes=4 * 77)


def test_what_is_unknown_is_said() -> None:
    """A dim without a size makes a node's operations unknown; its weights still count."""
    model = one_node("MatMul", {"x": ["n", 7]}, {"w": [7, 11]})
    found = sizes_at(model, {})
    assert not found.nodes["it"].known
    assert found.nodes["it"].bytes == 4 * 77
    assert found.values == {"w": 4 * 77}


def test_an_operator_that_inference_does_not_know_is_unknown() -> None:
    found = sizes_at(one_node("Odd", {"x": [2, 3]}, {}, domain="own"), {})
    assert not found.nodes["it"].known
    assert "y" not in found.shapes


def test_what_a_file_declares_of_inner_values_is_not_believed() -> None:
    model = one_node("Relu", {"x": ["n", 3]}, {})
    model.graph.output[0].CopyFrom(info("y", [1000, 1000]))
    assert cost(model, {"n": 2}).flops == 6


def stated(value: int | str | None) -> Sizes:
    model = one_node("Odd", {"x": [2, 3]}, {}, domain="own")
    model.graph.output[0].CopyFrom(info("y", None if value is None else [value, 3]))
    return sizes_at(model, {}, stated=True)


def test_stated_shapes_are_used_if_requested() -> None:
    assert stated(5).nodes["it"] == NodeCompute(flops=15, bytes=4 * (6 + 15))
    assert not stated("n").nodes["it"].known
    assert not stated(None).nodes["it"].known


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        ("FLOAT", 4.0),
        ("DOUBLE", 8.0),
        ("FLOAT16", 2.0),
        ("BFLOAT16", 2.0),
        ("INT64", 8.0),
        ("BOOL", 1.0),
        ("UINT8", 1.0),
        ("FLOAT8E4M3FN", 1.0),
        ("INT4", 0.5),
        ("UINT4", 0.5),
        ("FLOAT4E2M1", 0.5),
        ("COMPLEX64", 8.0),
        ("STRING", 1.0),
    ],
)
def test_width_of_an_element(kind: str, width: float) -> None:
    assert width_of(TensorProto.DataType.Value(kind)) == width


@pytest.mark.parametrize("name", TensorProto.DataType.keys())
def test_every_element_type_has_a_width(name: str) -> None:
    assert width_of(TensorProto.DataType.Value(name)) > 0


def test_half_and_odd_widths_count_in_bytes() -> None:
    half = one_node("Relu", {"x": [3, 5]}, {}, kind=TensorProto.FLOAT16)
    assert cost(half).bytes == 2 * 2 * 15


def test_an_unknown_rank_is_not_a_scalar() -> None:
    """A reshape to a shape of an unknown number of sizes: nothing is known of its output."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"], name="it"),
        helper.make_node("ReduceSum", ["r"], ["y"], name="sum", keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "made",
        [info("x", ["n", 4]), info("shape", ["rank"], TensorProto.INT64)],
        [onnx.ValueInfoProto(name="y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    typed = with_types(model, Path())
    (reshaped,) = (value for value in typed.graph.value_info if value.name == "r")
    assert reshaped.type.tensor_type.elem_type == FLOAT
    assert not reshaped.type.tensor_type.HasField("shape")
    for sizes in (sizes_at(typed, {"n": 2}), sizes_at(typed, {}, stated=True)):
        assert not sizes.nodes["it"].known
        assert "r" not in sizes.values


def test_sizes_that_only_a_run_shows() -> None:
    """The number of nonzero elements depends on the data: one run shows only its own."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"], name="it"),
        helper.make_node("Neg", ["places"], ["y"], name="neg"),
    ]
    graph = helper.make_graph(nodes, "made", [info("x", [6])], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    inputs = {"x": np.array([0, 1, 0, 2, 3, 0], np.float32)}
    assert not sizes_at(with_types(model, Path(), inputs), {}, stated=True).nodes["it"].known
    found = sizes_at(with_types(model, Path(), inputs, sizes=True), {}, stated=True)
    assert (found.shapes["places"], found.shapes["y"]) == ((1, 3), (1, 3))
    assert found.nodes["neg"] == NodeCompute(flops=3, bytes=2 * 8 * 3)


def test_types_that_only_onnx_runtime_knows() -> None:
    """An operator of ONNX Runtime's own domain, in the middle and at the end."""
    nodes = [
        helper.make_node("FastGelu", ["x"], ["g"], name="it", domain="com.microsoft"),
        helper.make_node("Neg", ["g"], ["m"], name="neg"),
        helper.make_node("QuickGelu", ["m"], ["y"], name="end", domain="com.microsoft"),
    ]
    graph = helper.make_graph(nodes, "made", [info("x", ["n", 4])], [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    assert not sizes_at(model, {"n": 2}).nodes["it"].known
    typed = with_types(model, Path())
    known = {value.name: value for value in (*typed.graph.value_info, *typed.graph.output)}
    assert set(known) == {"g", "m", "y"}
    for value in known.values():
        assert value.type.tensor_type.elem_type == FLOAT
        assert [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim] == ["n", 4]


class Unread(dict[str, np.ndarray]):
    """Inputs that no run may ask for."""

    def items(self) -> Any:
        raise AssertionError("a run asked for inputs")


def test_sizes_that_onnx_runtime_tells_need_no_run() -> None:
    nodes = [helper.make_node("FastGelu", ["x"], ["y"], name="it", domain="com.microsoft")]
    cases: list[tuple[list[int | str | None], bool]] = [([2, 4], True), (["n", 4], False)]
    for shape, sizes in cases:
        graph = helper.make_graph(
            nodes, "made", [info("x", shape)], [onnx.ValueInfoProto(name="y")]
        )
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        (made,) = with_types(model, Path(), Unread(), sizes=sizes).graph.output
        assert [d.dim_param or d.dim_value for d in made.type.tensor_type.shape.dim] == shape
    # Of the number of samples only a run tells.
    with pytest.raises(AssertionError, match="a run asked"):
        with_types(model, Path(), Unread(), sizes=True)


def test_types_that_a_file_lies_about_are_found_anew() -> None:
    model = one_node("Relu", {"x": [2, 3]}, {})
    model.graph.node.append(helper.make_node("Cast", ["y"], ["c"], name="c", to=TensorProto.INT64))
    model.graph.output[0].CopyFrom(onnx.ValueInfoProto(name="c"))
    model.graph.value_info.append(info("y", [9, 9, 9], TensorProto.DOUBLE))
    typed = with_types(model, Path())
    (value,) = (value for value in typed.graph.value_info if value.name == "y")
    assert value.type.tensor_type.elem_type == FLOAT
    assert [d.dim_value for d in value.type.tensor_type.shape.dim] == [2, 3]
