"""Casts that ONNX Runtime inserts for its CPU are removed for other providers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.passes.after_optimizer import DropInsertedCasts, has_inserted_casts, types_agree
from aotc.graph.passes.base import run_passes
from aotc.graph.view import every_node

HALF, FULL = TensorProto.FLOAT16, TensorProto.FLOAT


def model(
    nodes: Sequence[onnx.NodeProto], read: int, made: int, *constants: onnx.TensorProto
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", read, ["n", 4])],
        [helper.make_tensor_value_info("y", made, ["n", 4])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def written(source: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """`source` as ONNX Runtime's optimizer writes it."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 4
    ort.InferenceSession(source.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "optimized.onnx")


def operators(made: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in every_node(made)]


def test_a_half_precision_graph_is_what_it_was(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float16), "w")
    source = model(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("MatMul", ["b", "w"], ["y"]),
        ],
        HALF,
        HALF,
        weight,
    )
    made = written(source, tmp_path)
    assert has_inserted_casts(made)
    run_passes(made, (DropInsertedCasts(),))
    assert operators(made) == ["MatMul", "Relu", "MatMul"]
    assert types_agree(made, source)
    onnx.checker.check_model(made, full_check=True)


def test_a_merged_cast_of_the_model_is_reported(tmp_path: Path) -> None:
    """ONNX Runtime removes the cast to half before its own: Relu would compute in float32."""
    source = model(
        [
            helper.make_node("Cast", ["x"], ["half"], to=HALF),
            helper.make_node("Relu", ["half"], ["a"]),
            helper.make_node("Cast", ["a"], ["y"], to=FULL),
        ],
        FULL,
        FULL,
    )
    made = written(source, tmp_path)
    run_passes(made, (DropInsertedCasts(),))
    assert not has_inserted_casts(made)
    assert operators(made) == ["Relu", "Cast"]
    assert not types_agree(made, source)


def test_so_is_one_before_an_operator_whose_types_nobody_infers(tmp_path: Path) -> None:
    source = model(
        [
            helper.make_node("Cast", ["x"], ["half"], "own", to=HALF),
            helper.make_node("QuickGelu", ["half"], ["a"], "odd", domain="com.microsoft"),
            helper.make_node("Cast", ["a"], ["y"], "back", to=FULL),
        ],
        FULL,
        FULL,
    )
    source.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    made = written(source, tmp_path)
    run_passes(made, (DropInsertedCasts(),))
    assert "own" not in [node.name for node in made.graph.node]
    assert not types_agree(made, source)


def test_subgraphs_of_control_flow_too(tmp_path: Path) -> None:
    def body(op: str, name: str) -> onnx.GraphProto:
        return helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node(op, ["p"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, HALF, None)],
        )

    source = model(
        [
            helper.make_node(
                "If", ["c"], ["y"], then_branch=body("Relu", "t"), else_branch=body("Tanh", "e")
            )
        ],
        HALF,
        HALF,
        numpy_helper.from_array(np.eye(4, dtype=np.float16), "w"),
    )
    source.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    made = written(source, tmp_path)
    assert has_inserted_casts(made)
    run_passes(made, (DropInsertedCasts(),))
    assert sorted(operators(made)) == ["If", "MatMul", "MatMul", "Relu", "Tanh"]
    assert types_agree(made, source)


def test_types_that_do_not_agree_are_reported() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=HALF),
        helper.make_node("Add", ["x", "half"], ["y"]),
    ]
    made = model(nodes, FULL, FULL)
    assert not types_agree(made, made)
