"""`server-cuda` on a machine without a GPU: predictions and refusals by the kernel table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gpu_models as models
import numpy as np
import onnx
import openvino_models as small
import pytest
import yaml
from made_profiles import profile_with
from model_parts import info
from onnx import TensorProto, helper, numpy_helper
from workbench import Built, Workbench, only_variant

from aotc import verify
from aotc.base.errors import AotcError
from aotc.cli import main as cli
from aotc.providers.cuda import CudaBackend
from aotc.spec.codec import ParseError, encode
from aotc.spec.profile import Profile

pytestmark = pytest.mark.skipif(
    CudaBackend().probe().runs, reason="this machine runs CUDA: tests/gpu are for it"
)
RTX = "NvTensorRTRTXExecutionProvider"
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
KEEP_PARTS = {"partitioning": {"weigh_boundaries": False}}
NO_BUDGETS: dict[str, Any] = {"budgets": {}}
NO_KERNEL = "CUDA has no kernel of MatMul-13 for int32 as T"


def profile(base: str = "server-cuda", **fields: Any) -> Profile:
    """The profile with other fields, for few rows."""
    return profile_with(base, **{"dims": {"batch": "1..4"}, **fields})


@pytest.fixture(scope="module")
def plain(bench: Workbench) -> Built:
    return bench.build(small.plain(), "plain", profile=profile())


@pytest.fixture(scope="module")
def divided(bench: Workbench) -> Built:
    """A product of int32, for which there is no kernel, with kernels on both sides."""
    return bench.build(models.whole_numbers(), "whole", profile=profile(**KEEP_PARTS, **NO_BUDGETS))


@pytest.fixture(scope="module")
def newer(bench: Workbench) -> Built:
    """A float16 residual network at opset 23, whose MaxPool has no kernel."""
    return bench.build(models.residual(23), "newer", profile=profile())


def opset(built: Built) -> int:
    model = onnx.load(built.payload / only_variant(built).model, load_external_data=False)
    return {opset.domain: opset.version for opset in model.opset_import}[""]


# Placement is predicted.


def test_all_that_has_kernels_is_predicted_on_cuda(plain: Built) -> None:
    variant = only_variant(plain)
    assert (variant.providers, variant.device) == ((CUDA,), "gpu")
    assert (variant.placement.origin, variant.placement.share) == ("predicted", {CUDA: 1.0})
    assert variant.partitioning is not None
    assert variant.partitioning.origin == "predicted"
    # Nothing is compiled: the graph stays ONNX, of ONNX's own operators.
    assert [node.op_type for node in plain.nodes()] == ["MatMul", "Tanh", "MatMul", "Tanh"]
    assert not any(entry.role == "ep-context" for entry in plain.manifest.files)
    assert (variant.parity.status, variant.parity.shapes) == ("not-run", ())
    assert "onnxruntime-gpu is not installed" in variant.parity.reason or (
        "no NVIDIA GPU" in variant.parity.reason
    )


def test_the_graph_was_compared_on_the_cpu_all_the_same(plain: Built) -> None:
    (evidence,) = plain.report.variants
    assert evidence.comparisons == ()
    assert {tuple(comparison.sizes.items()) for comparison in evidence.unpartitioned} >= {
        (("batch", 1),),
        (("batch", 4),),
    }
    assert all(
        error.passed for comparison in evidence.unpartitioned for error in comparison.outputs
    )


def test_what_a_host_must_have_is_stated(plain: Built) -> None:
    needs = only_variant(plain).requirements
    assert (needs.cuda_major, needs.nvidia_driver_min) == (13, "580.65.06")
    assert needs.providers == (CUDA,)
    assert needs.compute_capabilities == ()
    assert needs.plugins == ()


def test_float32_is_float32(plain: Built, bench: Workbench) -> None:
    """ONNX Runtime's default is TF32, with errors of a thousandth."""
    assert only_variant(plain).session.provider_options[CUDA]["use_tf32"] == "0"
    built = bench.build(small.plain(), "tf32", profile=profile(precision="tf32"))
    variant = only_variant(built)
    assert variant.session.provider_options[CUDA]["use_tf32"] == "1"
    assert (variant.precision, variant.parity.arithmetic) == ("tf32", "tf32")
    assert variant.parity.tolerance == profile().parity.tf32


def test_a_refused_node_goes_to_the_cpu_with_the_reason(divided: Built) -> None:
    variant = only_variant(divided)
    report = variant.partitioning
    assert report is not None
    assert [(part.provider, part.nodes) for part in report.partitions] == [
        (CUDA, 2), (CPU, 1), (CUDA, 2),
    ]  # fmt: skip
    (refusal,) = report.refusals
    assert (refusal.node, refusal.op, refusal.provider) == ("whole_product", "MatMul", CUDA)
    assert refusal.reason.startswith(NO_KERNEL)
    assert "float16" in refusal.reason
    placed = {node.name: node.provider for node in variant.placement.nodes}
    assert [name for name, provider in placed.items() if provider == CPU] == ["whole_product"]
    rows = divided.manifest.domain.corner("opt")["batch"]
    crossing = {
        transfer.value: transfer
        for transfer in report.transfers
        if transfer.source and transfer.target
    }
    assert {name: (one.dtype, one.bytes) for name, one in crossing.items()} == {
        "whole": ("int32", 4 * 64 * rows),
        "product": ("int32", 4 * 64 * rows),
    }


def test_two_builds_give_the_same_artifact(bench: Workbench, divided: Built) -> None:
    again = bench.build(
        divided.source,
        "whole-again",
        profile=profile(**KEEP_PARTS, **NO_BUDGETS),
    )
    assert again.report.artifact_id == divided.report.artifact_id


def test_a_model_that_is_not_worth_the_way_is_proven_here(bench: Workbench) -> None:
    """With all nodes on the CPU it needs no GPU, and is observed and compared as usual."""
    built = bench.build(models.whole_numbers(), "cheap", profile=profile(**NO_BUDGETS))
    variant = only_variant(built)
    assert (variant.providers, variant.device) == ((CPU,), "cpu")
    assert variant.parity.status == "passed"
    assert variant.requirements.cuda_major is None
    report = variant.partitioning
    assert report is not None
    why = {refusal.node: refusal.reason for refusal in report.refusals}
    assert why["whole_product"].startswith(NO_KERNEL)
    assert why["squash"] == "its boundaries cost more than it gains"
    assert verify(built.path, key=bench.public).verdict == "optimal"


# What the profile demands.


# The arena of a session on the GPU.


def test_an_arena_is_as_the_profile_says(bench: Workbench, plain: Built) -> None:
    memory = {"limit_bytes": 1 << 30, "shrink": True}
    built = bench.build(small.plain(), "arena", profile=profile(cuda={"memory": memory}))
    session = only_variant(built).session
    assert session.shrinks
    options = session.provider_options[CUDA]
    assert options["gpu_mem_limit"] == str(1 << 30)
    # What shrinks takes what it needs, as the first step of one that doubles is never given back.
    assert options["arena_extend_strategy"] == "kSameAsRequested"
    before = only_variant(plain).session
    assert not before.shrinks
    assert not {"gpu_mem_limit", "arena_extend_strategy"} & before.provider_options[CUDA].keys()


def test_a_limit_below_the_weights_is_refused(bench: Workbench) -> None:
    limited = profile(cuda={"memory": {"limit_bytes": 64}})
    with pytest.raises(AotcError) as caught:
        bench.build(small.plain(), "limited", profile=limited)
    assert (caught.value.code, caught.value.where) == ("AOTC-M017", "variant portable")
    assert caught.value.found == "cuda.memory.limit_bytes: 64"
    assert caught.value.expected.startswith(">= ")


def test_a_limit_is_planned_where_the_gpu_is(bench: Workbench) -> None:
    planned = profile(cuda={"memory": {"limit_bytes": "plan"}})
    with pytest.raises(AotcError) as caught:
        bench.build(small.plain(), "planned", profile=planned)
    assert (caught.value.code, caught.value.where) == ("AOTC-M013", "variant portable")
    assert caught.value.what == "the arena's limit cannot be planned"
    assert caught.value.found


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        (0, "0 is less than 1"),
        ("half", "expected int or 'plan', found 'half'"),
    ],
)
def test_a_limit_is_bytes_or_the_plan(stated: object, told: str) -> None:
    with pytest.raises(ParseError) as caught:
        profile(cuda={"memory": {"limit_bytes": stated}})
    (problem,) = caught.value.problems
    assert (problem.path, problem.what) == ("cuda.memory.limit_bytes", told)


def test_captured_graphs_do_not_shrink() -> None:
    with pytest.raises(ParseError) as caught:
        profile(cuda={"memory": {"shrink": True}, "graphs": {"capture": "sizes"}})
    (problem,) = caught.value.problems
    assert (problem.path, problem.code) == ("cuda.memory.shrink", "AOTC-M020")


def test_unproven_must_be_allowed(bench: Workbench) -> None:
    with pytest.raises(AotcError) as caught:
        bench.build(small.plain(), "refused", profile=profile(unproven="refuse"))
    assert (caught.value.code, caught.value.exit_status) == ("AOTC-N002", 1)
    assert "cuda: " in caught.value.what


def test_a_node_that_runs_nowhere(bench: Workbench) -> None:
    with pytest.raises(AotcError) as caught:
        bench.build(
            models.whole_numbers(), "nowhere", profile=profile(providers=["cuda"], **NO_BUDGETS)
        )
    error = caught.value
    assert (error.code, error.exit_status) == ("AOTC-P001", 1)
    assert "whole_product" in error.what
    assert NO_KERNEL in error.found
    assert error.fix


def test_a_share_of_compute_on_the_cpu_ends_the_build(
    bench: Workbench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The product is nearly all of the compute; the built-in profile allows a tenth."""
    source = bench.save(models.whole_numbers(), "breach")
    path = tmp_path / "budget.yaml"
    path.write_text(json.dumps(encode(profile(name="tight", **KEEP_PARTS))))
    output = tmp_path / "breach.aotc"
    words = ["build", source, "--profile", path, "-o", output, "--key", bench.private]
    assert cli.main([str(word) for word in words]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    for word in ("AOTC-P002", "budgets.cpu_share", "<= 0.1", "whole_product", "MatMul", "ai.onnx"):
        assert word in shown.err, shown.err
    assert "refused by" in shown.err
    assert cli.main([str(word) for word in (*words, "--json")]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["exit_status"] == 1
    (error,) = document["errors"]
    assert (error["code"], error["expected"]) == ("AOTC-P002", "<= 0.1")
    assert float(error["found"]) > 0.9
    (row,) = error["rows"]
    assert {key: row[key] for key in ("node", "op", "domain", "refused by")} == {
        "node": "whole_product", "op": "MatMul", "domain": "ai.onnx", "refused by": CUDA,
    }  # fmt: skip
    assert row["reason"].startswith(NO_KERNEL)
    assert "opset or element type" in row["fix"]
    assert not output.exists()


def test_an_alternate_variant_serves_if_cuda_breaches(bench: Workbench) -> None:
    built = bench.build(
        models.whole_numbers(),
        "alternate",
        profile=profile(
            **KEEP_PARTS,
            variants=[{"name": "gpu"}, {"name": "portable", "providers": ["cpu"]}],
            fallback={"policy": "alternate-variant"},
        ),
    )
    assert [variant.name for variant in built.manifest.variants] == ["portable"]
    (dropped,) = built.manifest.dropped
    assert (dropped.name, dropped.rejects) == ("gpu", False)
    assert "AOTC-P002" in dropped.reason
    assert "another variant serves" in built.finding("AOTC-P009")


# The opset is chosen for the provider.


def test_an_opset_that_costs_a_kernel_is_converted(newer: Built) -> None:
    assert newer.finding("AOTC-O005") == (
        "variant portable: opset 23 was converted to 21: "
        "cuda refuses 1 nodes at the one and 0 at the other"
    )
    assert opset(newer) == 21
    assert newer.manifest.source.opsets["ai.onnx"] == 23
    variant = only_variant(newer)
    (record,) = (record for record in variant.passes if record.name == "convert-opset")
    assert record.options == {"to": 21}
    names = [record.name for record in variant.passes]
    assert names.index("convert-opset") < names.index("onnxruntime-optimizer")
    assert variant.placement.share == {CUDA: 1.0}
    assert variant.partitioning is not None
    assert variant.partitioning.refusals == ()


def test_the_converted_graph_was_compared_with_the_original(newer: Built) -> None:
    (evidence,) = newer.report.variants
    assert len(evidence.unpartitioned) >= 3
    assert all(
        error.passed for comparison in evidence.unpartitioned for error in comparison.outputs
    )
    assert only_variant(newer).parity.arithmetic == "float16"


def test_the_opset_is_kept_if_the_profile_says_so(bench: Workbench) -> None:
    built = bench.build(models.residual(23), "kept", profile=profile(opset="keep"))
    assert opset(built) == 23
    assert "AOTC-O005" not in built.codes()
    variant = only_variant(built)
    assert not any(record.name == "convert-opset" for record in variant.passes)
    report = variant.partitioning
    assert report is not None
    (refusal,) = report.refusals
    assert (refusal.op, refusal.provider) == ("MaxPool", CUDA)
    assert refusal.reason.startswith("CUDA has no kernel of MaxPool-22")
    assert variant.placement.share[CPU] > 0


def test_an_opset_that_costs_nothing_stays(bench: Workbench, plain: Built) -> None:
    built = bench.build(models.residual(20), "older", profile=profile())
    for artifact, version in ((built, 20), (plain, 18)):
        assert opset(artifact) == version
        assert "AOTC-O005" not in artifact.codes()


def test_the_cpu_keeps_its_opset(bench: Workbench) -> None:
    built = bench.build(models.residual(23), "cpu", profile=profile("edge"))
    assert opset(built) == 23
    assert "AOTC-O005" not in built.codes()


def test_a_float16_model_computes_in_float16(newer: Built) -> None:
    """The CPU lacks such kernels and casts; a graph for CUDA must not contain these casts."""
    ops = [node.op_type for node in newer.nodes()]
    assert "Cast" not in ops
    model = onnx.load(newer.payload / only_variant(newer).model, load_external_data=False)
    typed = onnx.shape_inference.infer_shapes(model)
    kinds = {value.name: value.type.tensor_type.elem_type for value in typed.graph.value_info}
    values = [name for node in model.graph.node[:-1] for name in node.output]
    assert {kinds[name] for name in values} == {TensorProto.FLOAT16}
    assert {tensor.data_type for tensor in model.graph.initializer} == {TensorProto.FLOAT16}


# What a host must have.


def host(folder: Path, **fields: Any) -> Path:
    described = {
        "schema": "aotc.target/1",
        "name": "server",
        "libc": {"name": "glibc", "version": "2.39"},
        "onnxruntime": "1.31.1",
        "providers": [CUDA, CPU],
        "nvidia_driver": "580.65.06",
        "cuda_major": 13,
        "gpus": [{"name": "NVIDIA H200", "compute_capability": "9.0"}],
        **fields,
    }
    path = folder / "server.yaml"
    path.write_text(yaml.safe_dump(described))
    return path


@pytest.mark.parametrize(
    ("fields", "verdict", "code", "found"),
    [
        ({}, "degraded", "", ""),
        ({"cuda_major": 14, "nvidia_driver": "600.10"}, "degraded", "", ""),
        ({"gpus": [{"name": "T4", "compute_capability": "7.5"}]}, "degraded", "", ""),
        ({"nvidia_driver": "575.57.08"}, "incompatible", "AOTC-C007", "575.57.08"),
        ({"cuda_major": 12}, "incompatible", "AOTC-C007", "CUDA 12"),
        ({"providers": [CPU]}, "incompatible", "AOTC-C006", CPU),
    ],
)
def test_a_host_is_checked_against_the_manifest_only(
    bench: Workbench,
    plain: Built,
    tmp_path: Path,
    fields: dict[str, Any],
    verdict: str,
    code: str,
    found: str,
) -> None:
    report = verify(plain.path, key=bench.public, target=host(tmp_path, **fields))
    assert (report.authentic, report.verdict) == (True, verdict)
    refusals = {refusal.code: refusal for refusal in report.refusals}
    assert set(refusals) == ({"AOTC-C009", code} if code else set())
    if code:
        assert found in refusals[code].found


def test_this_machine_refuses_to_load_it(bench: Workbench, plain: Built) -> None:
    with pytest.raises(AotcError) as caught:
        bench.load(plain)
    codes = {caught.value.code, *(error.code for error in caught.value.also)}
    assert codes & {"AOTC-C006", "AOTC-C007"}


# Models that TensorRT for RTX does not take at all.


@pytest.mark.rtx
def test_what_tensorrt_refuses_falls_to_cuda(bench: Workbench) -> None:
    """The plugin does not support float64, and CUDA does."""
    shape = ["batch", 32]
    weights = onnx.numpy_helper.from_array(np.random.default_rng(1).standard_normal((32, 32)), "w")
    model = small.model_of(
        [
            onnx.helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
            onnx.helper.make_node("Tanh", ["h"], ["y"], name="squash"),
        ],
        [info("x", shape, TensorProto.DOUBLE)],
        [info("y", shape, TensorProto.DOUBLE)],
        [weights],
    )
    built = bench.build(model, "double", profile=profile("edge-rtx"))
    variant, _ = built.manifest.variants
    assert variant.providers == (CUDA,)
    assert variant.placement.share == {CUDA: 1.0}
    report = variant.partitioning
    assert report is not None
    assert {refusal.node for refusal in report.refusals} == {"product", "squash"}
    for refusal in report.refusals:
        assert (refusal.provider, "double" in refusal.reason) == (RTX, True)
    assert variant.requirements.compute_capabilities == ()
    assert variant.requirements.cuda_major == 13


def test_casts_that_the_model_states_are_kept(bench: Workbench) -> None:
    """Products in half precision between casts, as autocast exports them, stay unchanged."""
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], name="down", to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["half", "w"], ["product"], name="product"),
        helper.make_node("Relu", ["product"], ["positive"], name="positive"),
        helper.make_node("Cast", ["positive"], ["y"], name="up", to=TensorProto.FLOAT),
    ]
    weight = numpy_helper.from_array(np.eye(32, dtype=np.float16), "w")
    mixed = small.model_of(nodes, [info("x", ["n", 32])], [info("y", ["n", 32])], [weight])
    built = bench.build(mixed, "mixed", profile=profile(dims={"n": "1..4"}))
    assert [node.op_type for node in built.nodes()] == ["Cast", "MatMul", "Relu", "Cast"]
