"""Which nodes of exported networks stand for which nodes of the source, after each optimizer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from model_parts import info
from onnx import TensorProto, helper, numpy_helper
from openvino_models import model_of, weight
from repository import ROOT

from aotc.graph.passes.base import run_passes
from aotc.graph.passes.on_import import NameNodes, StripMetadata
from aotc.graph.view import covered_nodes, standing_for
from aotc.session.inference import MODEL, write_optimized
from aotc.spec.variant import Optimization

EXPORTS = ROOT / "tests" / "data" / "exports"


def both(name: str, level: Optimization, folder: Path) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """An export with names for all nodes, and as ONNX Runtime's optimizer writes it."""
    source = onnx.load(EXPORTS / f"{name}.onnx")
    run_passes(source, (NameNodes(),))
    path = folder / "source.onnx"
    path.write_bytes(source.SerializeToString())
    write_optimized(path, level, folder, into=folder)
    rewritten = onnx.load(folder / MODEL, load_external_data=False)
    run_passes(rewritten, (StripMetadata(), NameNodes()))
    return source, rewritten


@pytest.mark.parametrize("level", ["basic", "extended"])
@pytest.mark.parametrize("name", ["bert", "vit", "resnet50", "gpt2", "llama_sdpa", "whisper"])
def test_every_node_of_an_export_is_covered_once(
    name: str, level: Optimization, tmp_path: Path
) -> None:
    source, rewritten = both(name, level, tmp_path)
    covered = covered_nodes(source.graph, rewritten.graph)
    assert all(covered.values())
    times = Counter(node for nodes in covered.values() for node in nodes)
    # Sizes are computed again where they are needed.
    assert {node.name for node in source.graph.node if node.op_type != "Shape"} <= set(times)
    shapes = {node.name for node in source.graph.node if node.op_type == "Shape"}
    assert {node for node, count in times.items() if count > 1} <= shapes


def test_a_node_that_became_several_stands_for_all_of_them(tmp_path: Path) -> None:
    """In ONNX Runtime's layout for convolutions only the last value keeps its name."""
    source, rewritten = both("resnet50", "all", tmp_path)
    product = next(node for node in source.graph.node if node.op_type == "Conv")
    found = standing_for(source.graph, rewritten.graph, [product.name])
    kinds = {node.op_type for node in rewritten.graph.node if node.name in found}
    assert "Conv" in kinds


def test_a_new_value_is_known_by_the_node_that_reads_it() -> None:
    source = model_of(
        [
            helper.make_node("Relu", ["x"], ["a"], name="one"),
            helper.make_node("Tanh", ["a"], ["b"], name="two"),
            helper.make_node("MatMul", ["b", "w"], ["y"], name="three"),
        ],
        [info("x", [8])],
        [info("y", [8])],
        [weight("w", 8, 8)],
    )
    rewritten = model_of(
        [
            helper.make_node("Fused", ["x"], ["new"], name="fused"),
            helper.make_node("MatMul", ["new", "w"], ["y"], name="three"),
        ],
        [info("x", [8])],
        [info("y", [8])],
        [weight("w", 8, 8)],
    )
    assert covered_nodes(source.graph, rewritten.graph) == {
        "fused": ("one", "two"), "three": ("three",),
    }  # fmt: skip
    assert standing_for(source.graph, rewritten.graph, ["two"]) == {"fused"}


def test_nodes_of_bodies_are_covered() -> None:
    body = helper.make_graph(
        [helper.make_node("Tanh", ["x"], ["t"], name="inner")], "then", [], [info("t", [8])]
    )
    model = model_of(
        [helper.make_node("If", ["c"], ["y"], name="if", then_branch=body, else_branch=body)],
        [info("x", [8]), info("c", [], onnx.TensorProto.BOOL)],
        [info("y", [8])],
    )
    covered = covered_nodes(model.graph, model.graph)
    assert covered["inner"] == ("inner",)
    assert covered["if"] == ("if",)


def test_a_product_that_onnxruntime_fuses_stands_for_the_product(tmp_path: Path) -> None:
    """Of three dims it becomes a Reshape, a Gemm and a Reshape, and only the last keeps a name."""
    weights = [
        numpy_helper.from_array(np.ones((4, 4), np.float32), "w"),
        numpy_helper.from_array(np.ones(4, np.float32), "b"),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 4]) for name in ("x", "y")
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("Add", ["p", "b"], ["y"], "sum"),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "source.onnx"
    onnx.save(model, path)
    write_optimized(path, "basic", tmp_path, into=tmp_path)
    written = onnx.load(tmp_path / MODEL, load_external_data=False)
    (gemm,) = (node for node in written.graph.node if node.op_type == "Gemm")
    found = covered_nodes(graph, written.graph)
    assert found[gemm.name] == ("product",)
