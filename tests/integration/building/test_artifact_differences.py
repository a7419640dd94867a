"""What `diff` finds between real builds: of one model, and of releases and runtimes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from built_artifact import DIGITS
from jsonschema import Draft202012Validator
from made_models import linear
from made_profiles import profile_with
from onnx import TensorProto, helper, numpy_helper
from repository import ROOT
from workbench import Built, Workbench

from aotc.spec.codec import encode
from aotc.spec.diff_report import AREAS, DiffReport
from aotc.spec.json import strict_json
from aotc.tools.diff.artifacts import diff
from aotc.trust import key_files
from aotc.trust.packing import pack

COMPAT = sorted((ROOT / "manifests" / "compat").glob("*/digits.aotc"))
# Of the digits model, built with onnxruntime 1.30.0 in place of the release that is required.
OTHER_RUNTIME = ROOT / "tests" / "data" / "onnxruntime-1.30.aotc.zip"


@pytest.fixture(scope="module")
def edge(bench: Workbench) -> Built:
    return bench.build(DIGITS / "digits.onnx", "edge")


def changed(report: DiffReport) -> set[str]:
    assert report.problems == ()
    schema = strict_json((ROOT / "manifests" / "diff.schema.json").read_bytes())
    Draft202012Validator(schema).validate(encode(report, full=True))
    return {area.area for area in report.areas if area.status == "changed"}


def whats(report: DiffReport, area: str) -> list[str]:
    return [change.what for each in report.areas if each.area == area for change in each.changes]


def test_an_artifact_and_itself(edge: Built, tmp_path: Path) -> None:
    report = diff(edge.path, edge.path, fail_on=AREAS)
    assert (changed(report), report.same_id, report.failed) == (set(), True, ())
    packed = Path(pack(edge.path, tmp_path / "edge.aotc.zip").archive)
    assert changed(diff(edge.path, packed)) == set()


def test_two_builds_alike(edge: Built, bench: Workbench) -> None:
    """Times and the signer may differ, and nothing else."""
    private, _ = key_files.generate(bench.folder / "other.pem")
    again = replace(bench, private=private).build(DIGITS / "digits.onnx", "again")
    report = diff(edge.path, again.path)
    assert report.same_id
    assert changed(report) == {"trust"}
    assert set(whats(report, "trust")) == {"signers", "attestations"}
    assert {row.what for row in report.measured} >= {"load", "run opt", "peak memory"}


def test_another_profile(edge: Built, bench: Workbench) -> None:
    server = bench.build(DIGITS / "digits.onnx", "server", profile="server-cpu")
    report = diff(edge.path, server.path, fail_on=["size:3"])
    assert {"profile", "variants", "size"} <= changed(report)
    assert not changed(report) & {"source", "toolchain", "precision", "trust"}
    assert [(pair.a, pair.b) for pair in report.variants if not pair.a] != []
    assert report.area("size").ratio == pytest.approx(
        report.b.payload_bytes / report.a.payload_bytes, rel=1e-5
    )


def test_another_level_of_the_optimizer(edge: Built, bench: Workbench) -> None:
    """The passes say it, and the nodes that are no longer fused."""
    variants = [{"name": "portable", "isa": "baseline", "optimization": "basic"}]
    profile = profile_with("edge", variants=variants)
    basic = bench.build(DIGITS / "digits.onnx", "basic", profile=profile)
    report = diff(edge.path, basic.path)
    assert {"profile", "passes", "placement"} <= changed(report)
    assert "onnxruntime-optimizer.options.level" in whats(report, "passes")
    (nodes,) = report.nodes
    before = {node.name for node in edge.manifest.variants[0].placement.nodes}
    after = {node.name for node in basic.manifest.variants[0].placement.nodes}
    assert {node.a for node in nodes.removed} <= before - after
    assert {node.b for node in nodes.added} <= after - before
    assert len(before) - len(nodes.removed) == len(after) - len(nodes.added) == nodes.matched
    (weights,) = report.weights
    assert weights.equal


def test_half_precision_on_another_provider(edge: Built, bench: Workbench) -> None:
    """Predicted where there is no GPU: nodes move, and weights are converted."""
    profile = profile_with("server-cuda", parity={"random_shapes": 0})
    half = bench.build(DIGITS / "digits.onnx", "half", profile=profile, precision="float16")
    report = diff(edge.path, half.path, fail_on=["precision", "placement", "size:10", "source"])
    assert [each.what for each in report.failed] == [
        "A and B differ in their precision",
        "A and B differ in their placement",
    ]
    assert whats(report, "precision") == ["precision", "arithmetic"]
    (nodes,) = report.nodes
    assert {(node.provider_a, node.provider_b) for node in nodes.moved} == {
        ("CPUExecutionProvider", "CUDAExecutionProvider")
    }
    (weights,) = report.weights
    converted = [each for each in weights.changed if each.dtype_b == "float16"]
    assert converted
    for each in converted:
        # Half a unit in the last of ten bits, and of numbers below them a quarter of the least.
        assert each.max_rel is not None
        assert each.max_rel <= 2.0**-10, each


def test_another_weight(edge: Built, bench: Workbench) -> None:
    model = onnx.load(DIGITS / "digits.onnx")
    bias = next(t for t in model.graph.initializer if t.name == model.graph.node[-1].input[2])
    numbers = numpy_helper.to_array(bias).copy()
    numbers[0] += 0.5
    bias.CopyFrom(numpy_helper.from_array(numbers, bias.name))
    (bench.folder / "tuned").mkdir()
    path = bench.folder / "tuned" / "digits.onnx"
    path.write_bytes(model.SerializeToString())
    report = diff(edge.path, bench.build(path, "tuned").path)
    assert {"source", "weights"} <= changed(report)
    assert not changed(report) & {"placement", "passes", "shapes", "requirements", "memory"}
    (weights,) = report.weights
    (found,) = weights.changed
    assert found.max_abs == pytest.approx(0.5, rel=1e-5)
    assert found.max_rel == pytest.approx(
        0.5 / np.abs(numpy_helper.to_array(bias) - np.eye(len(numbers))[0] * 0.5).max(), rel=1e-5
    )


def test_other_shapes(edge: Built, bench: Workbench) -> None:
    fixed = bench.build(DIGITS / "digits.onnx", "fixed", dims={"batch": 4})
    report = diff(edge.path, fixed.path)
    assert {"shapes", "profile"} <= changed(report)
    assert any(what.startswith("domain.dims.batch") for what in whats(report, "shapes"))


def test_another_opset(bench: Workbench) -> None:
    """Of two exports of one network: the operators are the same."""
    report = diff(
        bench.build(linear(opset=17), "old").path, bench.build(linear(opset=21), "new").path
    )
    assert "source.opsets.ai.onnx" in whats(report, "source")
    assert not changed(report) & {"placement", "weights", "passes", "shapes"}


def test_another_runtime(edge: Built) -> None:
    """Moving from onnxruntime 1.30: what differs is named, and what does not is not."""
    report = diff(OTHER_RUNTIME, edge.path)
    assert changed(report) >= {"toolchain", "requirements"}
    versions = {change.what: change.a for change in report.area("toolchain").changes}
    assert versions["toolchain.onnxruntime"] == "1.30.0"
    assert "onnxruntime_min" in whats(report, "requirements")
    assert not changed(report) & {"source", "precision", "weights", "placement"}
    # What `host` stands for is another machine's, which may have another CPU.
    since = {
        f"profile.parity.{name}.max_slice" for name in ("bfloat16", "int8", "int4", "quantized")
    }
    since |= {"profile.probe.max_input_bytes", "profile.probe.max_size"}
    since |= {"profile.calibration.method", "profile.quantization.block_size"}
    assert set(whats(report, "profile")) <= {"target_sha256", *since}


@pytest.mark.parametrize("old", COMPAT, ids=lambda path: path.parent.name)
def test_artifacts_of_earlier_releases(old: Path, edge: Built) -> None:
    """Other versions of the manifest are read; each release is compared with each other form."""
    report = diff(old, edge.path)
    assert report.a.manifest != ""
    assert "source" not in changed(report), "it is the same model"
    assert changed(diff(old, old.with_name("digits.aotc.zip"))) == set()
    assert changed(diff(old, OTHER_RUNTIME)) >= {"toolchain", "trust"}
    for one, other in pairwise(COMPAT):
        changed(diff(one, other))


def test_a_model_of_control_flow(bench: Workbench) -> None:
    """Weights of subgraphs are compared too, by the path of their subgraph."""
    paths = []
    for number in (1.0, 2.0):
        branches = {
            name: helper.make_graph(
                [helper.make_node("Add", ["x", "c"], ["r"], name=f"{name}_add")],
                name,
                [],
                [helper.make_tensor_value_info("r", TensorProto.FLOAT, ["n"])],
                [numpy_helper.from_array(np.array([value], np.float32), "c")],
            )
            for name, value in (("then_branch", number), ("else_branch", 5.0))
        }
        graph = helper.make_graph(
            [helper.make_node("If", ["p"], ["y"], name="choose", **branches)],
            "g",
            [
                helper.make_tensor_value_info("p", TensorProto.BOOL, []),
                helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
            ],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        paths.append(bench.build(model, f"flow{number:g}").path)
    (weights,) = diff(*paths).weights
    assert [(each.a, each.max_abs) for each in weights.changed] == [("/choose.then_branch/c", 1.0)]
    assert weights.equal == 1
