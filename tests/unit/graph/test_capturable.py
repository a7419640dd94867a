"""What would keep a graph from a capture, written as CUDA has it: exactly, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from attention_graphs import ops
from model_parts import info
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.passes.fuse_for_cuda import fuse
from aotc.providers.cuda import CudaBackend, claim_of, uncapturable

NAME = "write-as-cuda-has-it"
Arrays = dict[str, np.ndarray[Any, Any]]


def graph(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[Any]]],
    outputs: dict[str, tuple[int, list[Any]]],
    opset: int = 20,
    **constants: Any,
) -> onnx.ModelProto:
    for index, node in enumerate(nodes):
        node.name = f"n{index}"
    made = helper.make_graph(
        nodes,
        "small",
        [info(name, shape, kind) for name, (kind, shape) in inputs.items()],
        [info(name, shape, kind) for name, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(np.asarray(item), name) for name, item in constants.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def answers(model: onnx.ModelProto, given: Arrays) -> list[Any]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, given))


def check_equal(model: onnx.ModelProto, fused: onnx.ModelProto, **given: Any) -> None:
    for one, other in zip(answers(fused, given), answers(model, given), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def matched(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, int]]:
    fused, records = fuse(model, Path(), CudaBackend.ort_name)
    return fused, {
        name: n for one in records if one.name == NAME for name, n in one.matched.items()
    }


def numbers(dtype: str, *shape: int) -> Any:
    """Of the whole range of a type, both ends included, and some of them twice."""
    rng = np.random.default_rng(4)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    limits = np.iinfo(dtype)
    found = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True).reshape(-1)
    found[:3] = limits.min, limits.max, limits.max - 1
    found[-3:] = limits.max, limits.min, limits.min + 1
    return found.reshape(shape)


PAIR = ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mod"]
LOST = [
    *((op, "int8") for op in PAIR),
    *((op, "uint8") for op in PAIR),
    *((op, dtype) for op in ("Equal", "Less", "Greater", "Mod") for dtype in ("int16", "uint16")),
    *((op, dtype) for op in ("ArgMax", "ArgMin") for dtype in ("int8", "uint8", "int32")),
    ("Clip", "int32"),
    *(("GatherND", dtype) for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32")),
    *(("Pad", dtype) for dtype in ("int8", "uint8", "int32", "uint32")),
    *(("Tile", dtype) for dtype in ("bool", "int8", "uint8", "int16", "uint16", "uint32")),
    *(("Where", dtype) for dtype in ("int8", "uint32")),
    *(("Relu", dtype) for dtype in ("int8", "int32")),
    ("ReduceMax", "bool"),
    ("ReduceMin", "bool"),
]


def lost(op: str, dtype: str) -> tuple[onnx.ModelProto, Arrays]:
    """A graph of one node that CUDA has no kernel for, and what is given to it."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    rows = (kind, ["n", 6])
    inputs, constants, attributes = {"x": rows}, {}, {}
    given: Arrays = {"x": numbers(dtype, 4, 6)}
    read, result = ["x"], rows
    match op:
        case "ArgMax" | "ArgMin":
            attributes, result = {"axis": 1, "keepdims": 0}, (TensorProto.INT64, ["n"])
            given["x"][1] = given["x"][1, 0]
        case "Clip":
            read += ["low", "high"]
            limits = np.iinfo(dtype)
            constants = {
                "low": np.array(limits.max // 3, dtype),
                "high": np.array(limits.max - 9, dtype),
            }
        case "GatherND":
            read.append("at")
            constants, result = {"at": np.array([[0, 5], [3, 0], [-1, -1]])}, (kind, [3])
        case "Pad":
            read += ["pads", "fill"]
            constants = {
                "pads": np.array([0, 1, 0, 2]),
                "fill": np.array(np.iinfo(dtype).max, dtype),
            }
            result = (kind, ["n", 9])
        case "Tile":
            read.append("times")
            constants, result = {"times": np.array([1, 2])}, (kind, ["n", 12])
        case "Where":
            inputs["c"], given["c"] = (TensorProto.BOOL, ["n", 6]), numbers("bool", 4, 6)
            read, constants = ["c", "x", "other"], {"other": numbers(dtype, 6)}
        case "ReduceMax" | "ReduceMin":
            read.append("axes")
            constants, result = {"axes": np.array([1])}, (kind, ["n", 1])
        case _ if op in PAIR:
            inputs["z"], given["z"] = rows, numbers(dtype, 4, 6)[::-1]
            given["z"] = np.where(given["z"] == 0, 1, given["z"]).astype(dtype)
            read = ["x", "z"]
            result = rows if op in ("Max", "Min", "Mod") else (TensorProto.BOOL, ["n", 6])
    node = helper.make_node(op, read, ["y"], **attributes)
    return graph([node], inputs, {"y": result}, **constants), given


@pytest.mark.parametrize(("op", "dtype"), LOST)
def test_a_node_of_a_type_that_cuda_lacks_is_written_exactly(op: str, dtype: str) -> None:
    model, given = lost(op, dtype)
    assert claim_of(model).refusals
    fused, found = matched(model)
    assert found == {f"{op} of {dtype}": 1}
    assert not claim_of(fused).refusals
    check_equal(model, fused, **given)


@pytest.mark.parametrize("op", ["ArgMax", "Pad", "Tile", "Where", "Equal", "Max"])
def test_what_cuda_has_a_kernel_for_is_left(op: str) -> None:
    kinds = {"ArgMax": "float32", "Pad": "float32", "Tile": "int64", "Where": "int64"}
    model, _ = lost(op, "int8")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(kinds.get(op, "int32")))
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.INT8:
            value.type.tensor_type.elem_type = kind
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.INT8:
            array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(kind))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    fused, found = matched(model)
    assert not found and fused is model


IDS = {"ids": (TensorProto.INT64, ["n", 6])}
BEST = {"best": (TensorProto.INT64, ["n"])}
LAST = helper.make_node("ArgMax", ["i"], ["best"], axis=-1, keepdims=0)


def argmax(*before: onnx.NodeProto, more: Any = None, **constants: Any) -> onnx.ModelProto:
    return graph([*before, LAST], IDS, BEST | (more or {}), **constants)


def test_ids_that_index_a_table_are_exact_in_float64() -> None:
    """As the text encoders of CLIP find the end of a text: the largest id."""
    embed = helper.make_node("Gather", ["table", "ids"], ["rows"])
    view = helper.make_node("Reshape", ["ids", "shape"], ["i"])
    more = {"rows": (TensorProto.FLOAT, ["n", 6, 2])}
    table = np.random.default_rng(1).standard_normal((50, 2)).astype(np.float32)
    model = argmax(embed, view, more=more, table=table, shape=np.array([-1, 6]))
    fused, found = matched(model)
    assert found == {"ArgMax of int64": 1}
    ids = np.array([[3, 49, 1, 49, 2, 0], [0, 0, 0, 0, 0, 0], [9, 8, 7, 6, 5, 10]])
    check_equal(model, fused, ids=ids)


def test_an_int64_made_from_an_int32_is_exact_in_float64() -> None:
    casts = [
        helper.make_node("Cast", ["ids"], ["narrow"], to=TensorProto.INT32),
        helper.make_node("Cast", ["narrow"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Slice", ["wide", "from", "to"], ["i"]),
    ]
    model = argmax(*casts, **{"from": np.array([0]), "to": np.array([2])})
    fused, found = matched(model)
    assert found == {"ArgMax of int64": 1}
    check_equal(model, fused, ids=numbers("int32", 4, 6).astype(np.int64))


UNPROVEN: dict[str, tuple[list[onnx.NodeProto], dict[str, Any]]] = {
    "an input": ([helper.make_node("Identity", ["ids"], ["i"])], {}),
    "a sum": ([helper.make_node("Add", ["ids", "large"], ["i"])], {"large": np.array(1 << 60)}),
    "a constant": (
        [helper.make_node("Max", ["ids", "large"], ["i"])],
        {"large": np.array(1 << 54)},
    ),
    "of unsigned": (
        [
            helper.make_node("Cast", ["ids"], ["u"], to=TensorProto.UINT64),
            helper.make_node("Cast", ["u"], ["i"], to=TensorProto.INT64),
        ],
        {},
    ),
    "of a float": (
        [
            helper.make_node("Cast", ["ids"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Cast", ["f"], ["i"], to=TensorProto.INT64),
        ],
        {},
    ),
}


@pytest.mark.parametrize("name", UNPROVEN)
def test_an_int64_of_any_size_is_left(name: str) -> None:
    nodes, constants = UNPROVEN[name]
    model = argmax(*nodes, **constants)
    fused, found = matched(model)
    assert not found and fused is model


def test_an_index_into_a_table_of_unknown_size_is_left() -> None:
    nodes = [helper.make_node("Gather", ["table", "i"], ["rows"]), LAST]
    inputs = {"i": (TensorProto.INT64, ["n", 6]), "table": (TensorProto.FLOAT, ["words", 2])}
    rows = {"rows": (TensorProto.FLOAT, ["n", 6, 2])}
    assert not matched(graph(nodes, inputs, BEST | rows))[1]


def test_an_index_in_a_branch_that_may_not_run_is_left() -> None:
    rows = info("rows", [1, 6, 2])
    gather = helper.make_node("Gather", ["table", "ids"], ["rows"], name="gather")
    other = helper.make_node("Identity", ["none"], ["rows"], name="other")
    branches = {
        "then_branch": helper.make_graph([gather], "then", [], [rows]),
        "else_branch": helper.make_graph([other], "else", [], [rows]),
    }
    nodes = [helper.make_node("If", ["c"], ["e"], **branches)]
    nodes.append(helper.make_node("ArgMax", ["ids"], ["best"], axis=-1, keepdims=0))
    inputs = {"ids": (TensorProto.INT64, [1, 6]), "c": (TensorProto.BOOL, [])}
    outputs = BEST | {"e": (TensorProto.FLOAT, [1, 6, 2])}
    table, none = np.ones((50, 2), np.float32), np.zeros((1, 6, 2), np.float32)
    model = graph(nodes, inputs, outputs, table=table, none=none)
    fused, found = matched(model)
    assert not found
    large = np.array([[1 << 60, (1 << 60) + 1, 0, 0, 0, 0]])
    check_equal(model, fused, ids=large, c=np.array(False))


def test_the_last_of_several_is_left() -> None:
    node = helper.make_node("ArgMax", ["i"], ["best"], axis=-1, keepdims=0, select_last_index=1)
    assert not matched(graph([node], {"i": (TensorProto.INT32, ["n", 6])}, BEST))[1]


def test_nodes_that_compute_shapes_are_left() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["s32"], to=TensorProto.INT32),
        helper.make_node("Clip", ["s32", "", "most"], ["c"]),
        helper.make_node("Cast", ["c"], ["wanted"], to=TensorProto.INT64),
        helper.make_node("Expand", ["x", "wanted"], ["e"]),
        helper.make_node("Softmax", ["e"], ["y"]),
    ]
    rows = (TensorProto.FLOAT, ["n", "m"])
    model = graph(nodes, {"x": rows}, {"y": rows}, most=np.array(9, np.int32))
    assert claim_of(model).refusals
    assert not matched(model)[1]


# `values[mask] = number`.

WHOLE = ["n", "m", 3]
NUMBER = np.float32(-2)
FOUND = [
    helper.make_node("NonZero", ["mask"], ["at"]),
    helper.make_node("Transpose", ["at"], ["rows"], perm=[1, 0]),
    helper.make_node("Shape", ["rows"], ["size"], end=1),
    helper.make_node("Expand", ["number", "size"], ["filled"]),
]


def assignment(
    mask: list[Any],
    *nodes: onnx.NodeProto,
    kind: int = TensorProto.FLOAT,
    number: Any = NUMBER,
    more: dict[str, Any] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    scatter = helper.make_node("ScatterND", ["x", "rows", "filled"], ["y"], **attributes)
    made = graph(
        [*(nodes or FOUND), scatter],
        {"x": (kind, WHOLE), "mask": (TensorProto.BOOL, mask)},
        {"y": (kind, WHOLE)} | (more or {}),
        number=number,
    )
    return onnx.ModelProto.FromString(made.SerializeToString())


@pytest.mark.parametrize("values", [(1, 1), (4, 5), (2, 1), (0, 5)])
def test_a_masked_assignment_is_a_choice(values: tuple[int, int]) -> None:
    model = assignment(WHOLE)
    fused, found = matched(model)
    assert found == {"masked assignment": 1} and "Where" in ops(fused)
    on_cuda = dict.fromkeys((node.name for node in model.graph.node), "CUDAExecutionProvider")
    assert uncapturable(model, on_cuda)
    for node in fused.graph.node:
        on_cuda[node.name] = "CUDAExecutionProvider"
    assert not uncapturable(fused, on_cuda)
    rng = np.random.default_rng(6)
    x = rng.standard_normal((*values, 3)).astype(np.float32)
    for mask in (rng.random(x.shape) > 0.5, np.zeros(x.shape, bool), np.ones(x.shape, bool)):
        check_equal(model, fused, x=x, mask=mask)


def test_a_mask_of_leading_axes_spares_the_others() -> None:
    updates = [*FOUND[:2], helper.make_node("Shape", ["rows"], ["count"], end=1)]
    updates += [
        helper.make_node("Shape", ["x"], ["width"], start=2),
        helper.make_node("Concat", ["count", "width"], ["size"], axis=0),
        FOUND[3],
    ]
    model = assignment(["n", "m"], *updates)
    fused, found = matched(model)
    assert found == {"masked assignment": 1}
    rng = np.random.default_rng(7)
    x = rng.standard_normal((2, 4, 3)).astype(np.float32)
    check_equal(model, fused, x=x, mask=rng.random((2, 4)) > 0.5)


def test_assignments_that_are_no_choice_are_left() -> None:
    of_all = {"at": (TensorProto.INT64, [3, "found"])}
    two = helper.make_node("Expand", ["pair", "size"], ["filled"])
    assert not matched(assignment([1, "m", 3]))[1]
    assert not matched(assignment(["k", "m", 3]))[1]
    assert not matched(assignment(WHOLE, reduction="add"))[1]
    assert not matched(assignment(WHOLE, more=of_all))[1]
    # CUDA has no Where of booleans.
    assert not matched(assignment(WHOLE, kind=TensorProto.BOOL, number=np.array(True)))[1]
    several = assignment(WHOLE, *FOUND[:3], two)
    several.graph.input.append(info("pair", ["found"], TensorProto.FLOAT))
    assert not matched(several)[1]


def test_without_a_provider_no_type_is_looked_up() -> None:
    model, _ = lost("ArgMax", "int32")
    assert fuse(model, Path()) == (model, ())


def test_graphs_without_any_of_it_are_not_looked_at() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    rows = (TensorProto.FLOAT, ["n"])
    model = graph([node], {"x": rows}, {"y": rows})
    assert CudaBackend().fuse(model, Path()) == (model, ())
