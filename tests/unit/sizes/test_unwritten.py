"""Outputs with uninitialized memory are reliably detected."""

from __future__ import annotations

import platform

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from aotc.session.sessions import reference_options
from aotc.sizes.reference import is_unwritten, unpooled_options

FLOAT, UINT8, INT32 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT32


def session(op: str, kind: int, result: int) -> ort.InferenceSession:
    graph = helper.make_graph(
        [helper.make_node(op, ["a", "b"], ["y"])],
        "product",
        [
            helper.make_tensor_value_info("a", kind, ["rows", "inner"]),
            helper.make_tensor_value_info("b", kind, ["inner", "columns"]),
        ],
        [helper.make_tensor_value_info("y", result, ["rows", "columns"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = unpooled_options(reference_options())
    return ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


def inputs(rows: int, inner: int, columns: int, kind: type) -> dict[str, np.ndarray]:
    return {"a": np.ones((rows, inner), kind), "b": np.ones((inner, columns), kind)}


# From one element to more than what is mapped, and those that the C library keeps for a thread.
SHAPES = [(1, 1), (1, 8), (4, 8), (16, 16), (31, 8), (300, 400), (2000, 2000)]


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc fills memory as it is handed out"
)
@pytest.mark.parametrize("shape", SHAPES)
def test_what_no_kernel_wrote_is_told(shape: tuple[int, int]) -> None:
    opened = session("MatMulInteger", UINT8, INT32)
    rows, columns = shape
    for _ in range(20):
        assert is_unwritten(opened, inputs(rows, 0, columns, np.uint8))


@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_kernel_wrote_is_an_answer(shape: tuple[int, int]) -> None:
    rows, columns = shape
    integers = session("MatMulInteger", UINT8, INT32)
    assert not is_unwritten(integers, inputs(rows, 3, columns, np.uint8))
    floats = session("MatMul", FLOAT, FLOAT)
    assert not is_unwritten(floats, inputs(rows, 0, columns, np.float32))
