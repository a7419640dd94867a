"""Values computed from a shape become constants if they are known, and stay otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.passes.base import run_passes
from aotc.graph.passes.with_sizes import FoldShapes
from aotc.graph.view import shape_nodes


def model(nodes: list[onnx.NodeProto], shape: list[int | str], **constants: Any) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT64, None)],
        [numpy_helper.from_array(np.array(v, np.int64), name) for name, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


SHAPE = helper.make_node("Shape", ["x"], ["s"], name="shape")


@pytest.mark.parametrize(
    ("shape", "read", "constants", "folded"),
    [
        (["b", 8, 4], helper.make_node("Gather", ["s", "i"], ["y"]), {"i": 1}, True),
        (["b", 8, 4], helper.make_node("Gather", ["s", "i"], ["y"]), {"i": [-1, 1]}, True),
        (["b", 8, 4], helper.make_node("Gather", ["s", "i"], ["y"]), {"i": 0}, False),
        (["b", 8, 4], helper.make_node("Gather", ["s", "i"], ["y"]), {"i": [0, 1]}, False),
        (
            ["b", 8, 4],
            helper.make_node("Slice", ["s", "i", "j"], ["y"]),
            {"i": [1], "j": [3]},
            True,
        ),
        (
            ["b", 8, 4],
            helper.make_node("Slice", ["s", "i", "j", "a", "d"], ["y"]),
            {"i": [2], "j": [2**62], "a": [0], "d": [1]},
            True,
        ),
        (
            ["b", 8, 4],
            helper.make_node("Slice", ["s", "i", "j", "a", "d"], ["y"]),
            {"i": [0], "j": [3], "a": [0], "d": [2]},
            False,
        ),
        (
            ["b", 8, 4],
            helper.make_node("Slice", ["s", "i", "j"], ["y"]),
            {"i": [0], "j": [2]},
            False,
        ),
        ([2, 8, 4], helper.make_node("Identity", ["s"], ["y"]), {}, True),
    ],
)
def test_what_is_read(
    shape: list[int | str], read: onnx.NodeProto, constants: dict[str, Any], folded: bool
) -> None:
    made = model([SHAPE, read], shape, **constants)
    before = ort.InferenceSession(made.SerializeToString())
    run_passes(made, (FoldShapes(),))
    operators = [node.op_type for node in made.graph.node]
    assert ("Constant" in operators) == folded
    assert [list(node.output) for node in made.graph.node] == [["s"], ["y"]]
    given = {"x": np.zeros((2, 8, 4), np.float32)}
    after = ort.InferenceSession(made.SerializeToString())
    np.testing.assert_array_equal(before.run(None, given)[0], after.run(None, given)[0])


def test_a_part_of_a_shape() -> None:
    part = helper.make_node("Shape", ["x"], ["y"], start=1)
    made = model([part], ["b", 8, 4])
    run_passes(made, (FoldShapes(),))
    assert len(shape_nodes(made)) == 0
    (found,) = ort.InferenceSession(made.SerializeToString()).run(
        None, {"x": np.zeros((3, 8, 4), np.float32)}
    )
    assert found.tolist() == [8, 4]


def test_what_a_file_declares_of_inner_values_is_not_believed() -> None:
    relu = helper.make_node("Relu", ["x"], ["r"])
    shape = helper.make_node("Shape", ["r"], ["s"])
    gather = helper.make_node("Gather", ["s", "i"], ["y"])
    made = model([relu, shape, gather], ["b", 8, 4], i=0)
    lie = helper.make_tensor_value_info("r", TensorProto.FLOAT, [1, 8, 4])
    made.graph.value_info.append(lie)
    run_passes(made, (FoldShapes(),))
    assert "Constant" not in [node.op_type for node in made.graph.node]
