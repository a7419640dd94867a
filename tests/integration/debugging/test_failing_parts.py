"""Parts of variants as models of their own: their providers, types and captured values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino_models as small
import pytest
from made_profiles import profile_with
from model_parts import constant, info
from onnx import TensorProto, helper
from replaced_payload import with_manifest, with_model
from workbench import Workbench

from aotc.precision.node_comparison import Place
from aotc.tools.debug_parity import debug_parity
from aotc.tools.smallest_failing import PartModel


@pytest.mark.openvino
def test_a_node_that_was_kept_on_the_cpu_is_not_tried_elsewhere(
    bench: Workbench, tmp_path: Path
) -> None:
    """OpenVINO would claim it, and round it to bfloat16, which the variant does not."""
    profile = profile_with(
        "edge-openvino",
        providers=["openvino", "cpu"],
        precision="bfloat16",
        keep_float32=["y_*"],
        partitioning={"weigh_boundaries": False},
        budgets={},
        fallback={"policy": "cpu", "max_node_share": 0.9},
        dims={"batch": "1..4"},
    )
    built = bench.build(small.plain(), "debugged-openvino", profile=profile)
    (variant,) = built.manifest.variants
    assert {node.provider for node in variant.placement.nodes} == set(variant.providers)

    def strict(document: dict[str, Any]) -> None:
        tolerance = {"atol": 0.0, "rtol": 1e-5, "min_cosine": 0.0}
        document["variants"][0]["parity"].update(tolerance=tolerance)

    target = with_manifest(built.path, tmp_path / "strict.aotc", strict)
    report = debug_parity(target, built.source, output=tmp_path / "failing")
    if not report.failed:
        pytest.skip("on this CPU, OpenVINO does not compute in bfloat16")
    assert [refusal.code for refusal in report.failed] == ["AOTC-N037"]
    # All errors are made by what is compiled, which does not run alone.
    assert report.submodel is None
    assert not (tmp_path / "failing").exists()


def in_bfloat16(spoiled: str = "") -> onnx.ModelProto:
    """A product whose result goes through bfloat16; before or after, it may grow by a tenth."""
    steps = {
        "m": ("MatMul", ["x", "w"], {}),
        "h": ("Cast", ["m"], {"to": TensorProto.BFLOAT16}),
        "f": ("Cast", ["h"], {"to": TensorProto.FLOAT}),
        "y": ("Elu", ["f"], {}),
    }
    nodes = []
    for name, (op, reads, attributes) in steps.items():
        if name == spoiled == "h":
            nodes.append(helper.make_node("Mul", ["m", "tenth"], ["grown"], name="grow"))
            reads = ["grown"]
        made = f"{name}_raw" if name == spoiled == "f" else name
        nodes.append(helper.make_node(op, reads, [made], name=f"n_{name}", **attributes))
        if made != name:
            nodes.append(helper.make_node("Mul", [made, "tenth"], [name], name="grow"))
    graph = helper.make_graph(
        nodes,
        "bfloat16",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        [small.weight("w", 8, 8), constant("tenth", np.float32(1.1))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("spoiled", ["h", "f"])
def test_a_part_that_reads_or_makes_bfloat16(
    bench: Workbench, tmp_path: Path, spoiled: str
) -> None:
    built = bench.build(in_bfloat16(), f"debugged-bfloat16-{spoiled}", dims={"batch": "1..4"})
    target = with_model(built.path, tmp_path / "spoiled.aotc", lambda _: in_bfloat16(spoiled))
    report = debug_parity(target, built.source, output=tmp_path / "failing")
    assert report.submodel is not None
    assert report.submodel.value == spoiled
    folder = tmp_path / "failing"
    held = np.load(folder / ("expected.npz" if spoiled == "h" else "inputs.npz"))
    assert held["h"].dtype == np.uint16
    command = [sys.executable, "-I", str(folder / "reproduce.py")]
    assert subprocess.run(command, check=False, timeout=300).returncode == 1
    (folder / "submodel.onnx").write_bytes((folder / "reference.onnx").read_bytes())
    assert subprocess.run(command, check=False, timeout=300).returncode == 0


def captured_in_a_body() -> onnx.ModelProto:
    """Branches that capture `a`, one of which has a value of that name itself."""
    outer = helper.make_graph(
        [helper.make_node("Mul", ["a", "two"], ["t"], name="outer_product")],
        "outer",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, [2])],
    )
    own = helper.make_graph(
        [
            helper.make_node("Neg", ["x"], ["a"], name="own"),
            helper.make_node("Abs", ["a"], ["e"], name="size"),
        ],
        "own",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, [2])],
    )
    return small.model_of(
        [helper.make_node("If", ["c"], ["y"], "if", then_branch=outer, else_branch=own)],
        [info("c", [], TensorProto.BOOL)],
        [info("y", [2])],
        [constant("two", np.float32(2))],
    )  # fmt: skip


def test_renamed_inputs_of_a_part_are_renamed_in_its_bodies() -> None:
    model = captured_in_a_body()
    data = np.ones(2, np.float32)
    part = PartModel(model, Path(), list(model.graph.node))
    part.given("a", data, Place("a"), "double")
    part.given("c", np.array(True), None, "bool")
    (branch,) = part.finished().graph.node[-1:]
    outer, own = (attribute.g for attribute in branch.attribute)
    if outer.name != "outer":
        outer, own = own, outer
    assert outer.node[0].input[0] == "a/converted"
    assert (own.node[0].output[0], own.node[1].input[0]) == ("a", "a")
