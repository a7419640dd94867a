"""Time per node of real artifacts, joined with what their manifests promise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openvino_models
import pytest
from built_artifact import BuiltArtifact
from made_models import linear, looping
from made_profiles import profile_with
from third_party_models import MODELS, needs_models
from workbench import Built, Workbench

from aotc import bench as run_bench
from aotc import load
from aotc.base.errors import AotcError
from aotc.runtime.warmup import open_variant
from aotc.session.node_times import profiled_runs, read_events
from aotc.spec.bench_reports import BenchReport, NodesReport
from aotc.tools.bench_nodes import profile_nodes
from aotc.tools.example_inputs import example_at

CPU = "CPUExecutionProvider"


def measured(path: Path, key: Path, store: Path, **options: Any) -> BenchReport:
    return run_bench(path, runs=2, warm_up=0, key=key, store=store, nodes=True, **options)


def nodes_of(report: BenchReport) -> NodesReport:
    assert report.nodes is not None
    return report.nodes


def assert_sound(report: NodesReport, built: Built) -> None:
    """Sums, shares, and that every node is one of the manifest's or was made at load."""
    (variant,) = (each for each in built.manifest.variants if each.name == report.variant)
    placed = {node.name: node.provider for node in variant.placement.nodes}
    assert 1 <= report.runs <= report.profiled_runs
    # A microsecond for each rounded number.
    assert report.node_seconds <= report.run_seconds + 1e-6 * len(report.nodes)
    assert sum(node.seconds for node in report.nodes) == pytest.approx(report.node_seconds)
    assert sum(each.seconds for each in report.providers) == pytest.approx(report.node_seconds)
    assert sum(node.share for node in report.nodes) == pytest.approx(1.0)
    assert [node.seconds for node in report.nodes] == sorted(
        (node.seconds for node in report.nodes), reverse=True
    )
    for node in report.nodes:
        assert node.calls > 0
        if node.name in placed:
            assert (node.provider, node.promised) == (placed[node.name], placed[node.name])
        else:
            assert node.promised == ""
            assert node.op.startswith("Reorder") or node.op == "Transpose", node


def test_convolutions_have_the_payloads_names(digits: BuiltArtifact, tmp_path: Path) -> None:
    """ONNX Runtime replaces them at load, and calls the new ones after what they compute."""
    answer = measured(digits.path, digits.public_key, tmp_path / "store", variant="portable")
    report = nodes_of(answer)
    convolutions = {node.name for node in report.nodes if node.op == "Conv"}
    assert convolutions == {"node_conv2d", "node_conv2d_1", "node_conv2d_2"}
    assert all(node.promised == CPU for node in report.nodes if node.op == "Conv")


def test_a_padded_call_is_profiled_as_it_runs(bench: Workbench, tmp_path: Path) -> None:
    """The variant of the bucket that takes the call, with inputs of the bucket's sizes."""
    profile = profile_with("edge", dims={"batch": {"buckets": [4, 16], "outside": "pad"}})
    built = bench.build(linear(), "bucketed", profile=profile)
    answer = measured(built.path, bench.public, tmp_path / "store", sizes={"batch": 11})
    report = nodes_of(answer)
    (variant,) = (each for each in built.manifest.variants if each.name == report.variant)
    assert variant.buckets == {"batch": 16}
    assert answer.sizes == {"batch": 11}
    assert_sound(report, built)


@needs_models
@pytest.mark.parametrize("name", ["silero_vad_v6", "gtcrn_stream", "mobilenet_qdq_int8"])
def test_third_party_models(name: str, bench: Workbench, tmp_path: Path) -> None:
    """With subgraphs, with two thousand nodes, and quantized."""
    dims = {"batch": 1} if name == "mobilenet_qdq_int8" else {}
    built = bench.build(MODELS / f"{name}.onnx", name, dims=dims)
    report = nodes_of(measured(built.path, bench.public, tmp_path / "store"))
    assert_sound(report, built)


@pytest.mark.slow
def test_a_long_loop_is_counted_whole(bench: Workbench, tmp_path: Path) -> None:
    """ONNX Runtime keeps a million events: the second run of 520,000 is not all there."""
    built = bench.build(looping(260_000), "looping")
    report = nodes_of(measured(built.path, bench.public, tmp_path / "store"))
    calls = {node.op: node.calls for node in report.nodes}
    assert calls["Loop"] == 1
    assert calls["Add"] == 260_000
    assert report.node_seconds <= report.run_seconds * 1.01


@pytest.mark.slow
def test_runs_that_the_profile_lacks_are_refused(bench: Workbench, tmp_path: Path) -> None:
    built = bench.build(looping(600_000), "endless")
    with pytest.raises(AotcError) as caught:
        measured(built.path, bench.public, tmp_path / "store")
    assert caught.value.code == "AOTC-I066"


@pytest.mark.openvino
def test_a_compiled_partition_is_one_node(bench: Workbench, tmp_path: Path) -> None:
    fields = {"partitioning": {"weigh_boundaries": False}, "dims": {"batch": "1..2"}}
    built = bench.build(
        openvino_models.divided(), "divided", profile=profile_with("edge-openvino", **fields)
    )
    (variant,) = built.manifest.variants
    assert variant.partitioning is not None
    parts = {part.name: part for part in variant.partitioning.partitions if part.compiled}
    assert len(parts) == 2
    report = nodes_of(measured(built.path, bench.public, tmp_path / "store"))
    found = {node.partition: node for node in report.nodes if node.partition}
    assert set(found) == set(parts)
    for name, node in found.items():
        assert (node.name, node.partition_nodes) == (name, parts[name].nodes)
        assert node.provider == node.promised == "OpenVINOExecutionProvider"
    assert {each.provider for each in report.providers} == {CPU, "OpenVINOExecutionProvider"}


def test_a_profile_that_was_cut_off_is_refused(digits: BuiltArtifact, tmp_path: Path) -> None:
    """A real one, as a full disk leaves it."""
    with load(digits.path, key=digits.public_key, store=tmp_path / "store") as ready:
        inputs = example_at(ready, (), {})[0].inputs
        session = open_variant(ready.payload, ready.variant, profile=tmp_path / "session")
        session.run(None, inputs)
        written = Path(session.end_profiling())
        # The same artifact, profiled as bench does it.
        assert profile_nodes(ready, inputs, None).report.nodes
    assert len(profiled_runs(read_events(written), written)) == 1
    whole = written.read_bytes().rstrip()
    for length in {0, 1, len(whole) // 2, len(whole) - 1}:
        written.write_bytes(whole[:length])
        with pytest.raises(AotcError) as caught:
            read_events(written)
        assert (caught.value.code, caught.value.where) == ("AOTC-I066", str(written))
