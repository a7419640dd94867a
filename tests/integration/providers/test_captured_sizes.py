"""What a build says of sizes that are captured as CUDA graphs, on a machine without a GPU."""

from __future__ import annotations

import json
from typing import Any

import gpu_models as models
import numpy as np
import onnx
import pytest
from made_profiles import profile_with
from onnx import TensorProto, helper, numpy_helper
from workbench import Built, Workbench

from aotc.base.errors import AotcError
from aotc.cli import main as cli
from aotc.providers.cuda import CudaBackend
from aotc.spec.codec import ParseError
from aotc.spec.profile import Profile
from aotc.tools.inspect import inspect

pytestmark = pytest.mark.skipif(
    CudaBackend().probe().runs, reason="this machine runs CUDA: tests/gpu are for it"
)
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
SEQ = {"buckets": [4, 8, 16], "outside": "pad"}
FREE: dict[str, Any] = {"budgets": {}, "partitioning": {"weigh_boundaries": False}}


def profile(capture: str = "sizes", refused: str = "fail", **fields: Any) -> Profile:
    graphs = {"capture": capture, "on_refusal": refused, **fields.pop("graphs", {})}
    stated = {"dims": {"batch": "1..4", "seq": SEQ}, "cuda": {"graphs": graphs}, **fields}
    return profile_with("server-cuda", **stated)


def words() -> onnx.ModelProto:
    """Rows of [batch, seq, 8] times a matrix, through a Reshape whose sizes are computed."""
    matrix = np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32)
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"], name="sizes"),
        helper.make_node("Reshape", ["x", "flat"], ["rows"], name="flatten"),
        helper.make_node("MatMul", ["rows", "w"], ["product"], name="product"),
        helper.make_node("Reshape", ["product", "sizes"], ["y"], name="restore"),
    ]
    shape = ["batch", "seq", 8]
    graph = helper.make_graph(
        nodes,
        "words",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [
            numpy_helper.from_array(matrix, "w"),
            numpy_helper.from_array(np.array([-1, 8]), "flat"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def branching() -> onnx.ModelProto:
    """An If whose condition is an input."""
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["x"], [f"{op}_y"], name=f"{op}_node")],
            name,
            [],
            [helper.make_tensor_value_info(f"{op}_y", TensorProto.FLOAT, ["batch", 4])],
        )
        for name, op in (("then", "Tanh"), ("else", "Exp"))
    }
    graph = helper.make_graph(
        [helper.make_node("If", ["which"], ["y"], name="choice", **branches)],
        "branching",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4]),
            helper.make_tensor_value_info("which", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def captured(bench: Workbench) -> Built:
    return bench.build(words(), "captured", profile=profile())


def test_one_dynamic_variant_captures_every_bucket(captured: Built) -> None:
    (variant,) = captured.manifest.variants
    assert (variant.name, variant.buckets) == ("portable", {})
    assert variant.cuda_graphs is not None
    assert variant.cuda_graphs.sizes == tuple({"batch": 2, "seq": size} for size in (4, 8, 16))
    assert (variant.cuda_graphs.on_call, variant.cuda_graphs.on_refusal) == (False, "fail")
    assert variant.session.provider_options[CUDA]["enable_cuda_graph"] == "1"
    assert "captured-sizes" in captured.manifest.required_features


def test_inspect_shows_them(captured: Built, capsys: pytest.CaptureFixture[str]) -> None:
    report = inspect(captured.path)
    assert report.artifact is not None
    (shown,) = report.artifact.variants
    assert shown.cuda_graphs == captured.manifest.variants[0].cuda_graphs
    assert cli.main(["inspect", str(captured.path)]) == 0
    assert "3 sizes: batch 2; seq 4, 8, 16" in " ".join(capsys.readouterr().out.split())


def test_padded_answers_of_every_bucket_were_compared(captured: Built) -> None:
    (evidence,) = captured.report.variants
    padded = {comparison.padded_to.get("seq") for comparison in evidence.unpartitioned}
    assert padded == {None, 4, 8, 16}
    assert {comparison.sizes["seq"] for comparison in evidence.unpartitioned} >= {4, 8, 16}


def test_other_applications_of_onnx_runtime_get_no_graphs(captured: Built) -> None:
    """They would not name a graph for each size, and get the answers of another."""
    (path,) = captured.payload.glob("manifest.json")
    assert "use_tf32" in path.read_text()
    assert "enable_cuda_graph" not in json.dumps(json.loads(path.read_text()))


def test_variants_on_other_providers_keep_their_static_variants(bench: Workbench) -> None:
    variants = [{"name": "gpu"}, {"name": "plain", "providers": ["cpu"]}]
    built = bench.build(words(), "mixed", profile=profile(variants=variants))
    found = {item.name: item.cuda_graphs is not None for item in built.manifest.variants}
    assert found == {
        "gpu": True, "plain.seq4": False, "plain.seq8": False, "plain.seq16": False,
    }  # fmt: skip


def test_static_variants_capture_their_one_size_if_the_profile_wants_them(bench: Workbench) -> None:
    built = bench.build(words(), "static", profile=profile(graphs={"static": True}))
    found = {
        item.name: item.cuda_graphs and tuple(item.cuda_graphs.sizes)
        for item in built.manifest.variants
    }
    assert found == {f"portable.seq{n}": ({"batch": 2, "seq": n},) for n in (4, 8, 16)}


def test_without_buckets_the_optimal_sizes_are_captured(bench: Workbench) -> None:
    made = profile(capture="calls", dims={"batch": "1..4", "seq": {"min": 1, "opt": 6, "max": 9}})
    (variant,) = bench.build(words(), "optimal", profile=made).manifest.variants
    assert variant.cuda_graphs is not None
    assert variant.cuda_graphs.sizes == ({"batch": 2, "seq": 6},)
    assert variant.cuda_graphs.on_call


@pytest.mark.parametrize("capture", ["sizes", "calls"])
def test_one_static_variant_captures_the_optimal_sizes(capture: str, bench: Workbench) -> None:
    made = profile(capture=capture, graphs={"static": True}, dims={"batch": "1..4", "seq": 6})
    (variant,) = bench.build(words(), f"static-{capture}", profile=made).manifest.variants
    assert variant.cuda_graphs is not None
    assert variant.cuda_graphs.sizes == ({"batch": 2, "seq": 6},)


def test_the_dynamic_variant_beside_static_ones_has_no_graphs(bench: Workbench) -> None:
    dims = {"batch": 2, "seq": {"buckets": [4, 8], "outside": "route", "max": 16}}
    made = profile(capture="calls", graphs={"static": True}, dims=dims)
    built = bench.build(words(), "beside", profile=made)
    found = {item.name: item.cuda_graphs is not None for item in built.manifest.variants}
    assert found == {"portable": False, "portable.seq4": True, "portable.seq8": True}


def test_a_graph_that_cannot_be_captured_ends_the_build(bench: Workbench) -> None:
    made = profile(dims={"batch": "1..4"}, **FREE)
    with pytest.raises(AotcError) as caught:
        bench.build(models.whole_numbers(), "refused", profile=made)
    error = caught.value
    assert (error.code, error.exit_status) == ("AOTC-P014", 1)
    assert "whole_product (MatMul is on CPUExecutionProvider)" in error.found
    assert error.where == "variant portable"


def test_or_it_runs_without_and_says_so(bench: Workbench) -> None:
    made = profile(refused="run", dims={"batch": "1..4"}, **FREE)
    built = bench.build(models.whole_numbers(), "without", profile=made)
    (variant,) = built.manifest.variants
    assert variant.cuda_graphs is None
    assert "enable_cuda_graph" not in variant.session.provider_options[CUDA]
    assert "whole_product" in built.finding("AOTC-P014")
    assert "captured-sizes" not in built.manifest.required_features


def test_control_flow_cannot_be_captured(bench: Workbench) -> None:
    with pytest.raises(AotcError, match=r"AOTC-P014.*choice \(If is control flow\)"):
        bench.build(branching(), "branches", profile=profile(dims={"batch": "1..4"}, **FREE))


def test_what_cannot_be_captured_is_left_out_if_another_variant_serves(bench: Workbench) -> None:
    variants = [{"name": "gpu"}, {"name": "plain", "providers": ["cpu"]}]
    made = profile(
        variants=variants, dims={"batch": "1..4"}, fallback={"policy": "alternate-variant"}, **FREE
    )
    built = bench.build(models.whole_numbers(), "alternate", profile=made)
    assert [item.name for item in built.manifest.variants] == ["plain"]
    assert "AOTC-P014" in built.manifest.dropped[0].reason


def test_the_built_in_profile_captures(bench: Workbench) -> None:
    built = bench.build(words(), "built-in", profile="server-cuda", dims={"seq": 8, "batch": 2})
    (variant,) = built.manifest.variants
    assert variant.cuda_graphs is not None
    assert variant.cuda_graphs.sizes == ({"batch": 2, "seq": 8},)
    assert variant.cuda_graphs.on_refusal == "run"


def test_more_sizes_than_are_kept_are_refused() -> None:
    with pytest.raises(ParseError) as caught:
        profile(graphs={"max_count": 2})
    (problem,) = caught.value.problems
    assert (problem.path, problem.code) == ("dims", "AOTC-S031")
    assert "3 sizes to capture for variant portable" in problem.what


def test_captured_sizes_do_not_count_as_variants() -> None:
    many = {"batch": {"buckets": [1, 2, 4, 8]}, "seq": {"buckets": [8, 16, 24, 32]}}
    assert profile(dims=many, max_variants=1).variant_count() == 1
    with pytest.raises(ParseError, match="buckets make 17 variants"):
        variants = [{"name": "gpu"}, {"name": "plain", "providers": ["cpu"]}]
        profile(dims=many, max_variants=16, variants=variants)
