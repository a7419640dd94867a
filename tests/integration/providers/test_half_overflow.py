"""Nodes that overflow in half precision: found, named as the source does, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import openvino_models as small
import pytest
from made_profiles import profile_with
from model_parts import constant, info
from onnx import helper, numpy_helper
from repository import ROOT
from workbench import Built, Workbench

from aotc.pipeline.integers import observes_half
from aotc.providers.cuda import CudaBackend
from aotc.providers.openvino import OpenVinoBackend
from aotc.spec.codec import decode
from aotc.spec.profile import Profile
from aotc.spec.variant import PassRecord

VIT = ROOT / "tests" / "data" / "exports" / "vit.onnx"
ACTIVATIONS = "kept: activations out of range"
READERS = "kept: reads values out of range"
without_cuda = pytest.mark.skipif(
    CudaBackend().probe().runs, reason="this machine runs CUDA: tests/gpu are for it"
)
needs_openvino = pytest.mark.skipif(
    not OpenVinoBackend().probe().available, reason=OpenVinoBackend().probe().reason
)


def planted_vit() -> tuple[onnx.ModelProto, list[str]]:
    """A ViT in which two products are as large as float16's weights allow, and undone after."""
    model = onnx.load(VIT)
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    products = [
        node for node in graph.node if node.op_type == "MatMul" and node.input[1] in weights
    ]
    chosen = products[4], products[10]
    nodes = []
    for node in graph.node:
        nodes.append(node)
        if node not in chosen:
            continue
        weight = weights[node.input[1]]
        values = numpy_helper.to_array(weight)
        scale = np.float32(6e4) / np.abs(values).max()
        weight.CopyFrom(numpy_helper.from_array(values * scale, weight.name))
        made = node.output[0]
        node.output[0] = f"{made}_large"
        graph.initializer.append(numpy_helper.from_array(1 / scale, f"{made}_scale"))
        inputs = [node.output[0], f"{made}_scale"]
        nodes.append(helper.make_node("Mul", inputs, [made], name=f"{node.name}_undone"))
    copied = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copied)
    return model, [node.name for node in chosen]


def half_record(built: Built) -> PassRecord:
    (variant,) = built.manifest.variants
    (made,) = [item for item in variant.passes if item.name == "half-precision"]
    return made


@without_cuda
@pytest.mark.parametrize("base", ["server-cuda", pytest.param("edge-rtx", marks=pytest.mark.rtx)])
def test_two_planted_nodes_of_a_vit_are_kept_and_named(bench: Workbench, base: str) -> None:
    model, planted = planted_vit()
    variants = [{"name": "portable", "isa": "baseline"}]
    built = bench.build(
        model,
        f"vit-{base}",
        profile=profile_with(base, precision="float16", budgets={}, variants=variants),
    )
    made = half_record(built)
    assert sorted(made.kept) == sorted([*planted, *(f"{name}_undone" for name in planted)])
    assert {why: n for why, n in made.matched.items() if why.startswith("kept")} == {
        ACTIVATIONS: 2,
        READERS: 2,
    }
    told = built.finding("AOTC-N029")
    assert all(repr(name) in told for name in planted)
    assert "_undone" not in told
    assert "float16 ends at 65504" in told
    (evidence,) = built.report.variants
    assert all(error.passed for one in evidence.unpartitioned for error in one.outputs)


@without_cuda
def test_bfloat16_has_the_range(bench: Workbench) -> None:
    model, _ = planted_vit()
    loose = {"bfloat16": {"atol": 0.05, "rtol": 0.1, "min_cosine": 0.99}}
    built = bench.build(
        model, "vit-bf16", profile=profile_with("server-cuda", precision="bfloat16", parity=loose)
    )
    assert ACTIVATIONS not in half_record(built).matched
    assert "AOTC-N029" not in built.codes()


@without_cuda
def test_what_the_profile_keeps_are_nodes_of_the_source(bench: Workbench) -> None:
    """They may have been fused with others, which then stay in float32 as well."""
    source = onnx.load(VIT)
    product = next(node for node in source.graph.node if node.op_type == "MatMul")
    built = bench.build(
        VIT,
        "kept",
        profile=profile_with(
            "server-cuda", precision="float16", keep_float32=[product.name], budgets={}
        ),
    )
    made = half_record(built)
    assert made.matched["kept: profile"] == 1
    (kept,) = made.kept
    (node,) = [node for node in built.nodes() if node.name == kept]
    assert node.op_type == "Attention", "its queries are multiplied there"


def overflowing(width: int = 256) -> onnx.ModelProto:
    """Dense layers around a product of about 1e6, which is undone."""
    scale = np.float32(6e4) / np.abs(numpy_helper.to_array(small.weight("up", width, width))).max()
    up = numpy_helper.to_array(small.weight("up", width, width)) * scale
    return small.model_of(
        [
            *small.dense("x", "first", "a"),
            *small.dense("a", "second", "b"),
            helper.make_node("MatMul", ["b", "up"], ["c"], name="n_c"),
            helper.make_node("Mul", ["c", "down"], ["d"], name="n_d"),
            *small.dense("d", "third", "y"),
        ],
        [info("x", ["batch", width])],
        [info("y", ["batch", width])],
        [
            *(small.weight(name, width, width) for name in ("first", "second", "third")),
            numpy_helper.from_array(up, "up"),
            constant("down", np.float32(1 / scale)),
        ],
    )


@without_cuda
def test_calibration_data_tells_what_overflows(bench: Workbench) -> None:
    """Generated inputs are small; of the user's samples, one leaves the range in two nodes."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], name="square"),
        helper.make_node("Sqrt", ["square"], ["root"], name="root"),
        *small.dense("root", "weight", "y"),
    ]
    model = small.model_of(
        nodes,
        [info("x", ["batch", 8])],
        [info("y", ["batch", 8])],
        [small.weight("weight", 8, 8)],
    )
    samples = bench.folder / "loud.npz"
    np.savez(samples, x=np.stack([np.full(8, 1, np.float32), np.full(8, 1000, np.float32)]))
    asked = {"precision": "float16", "budgets": {}, "dims": {"batch": "1..4"}}

    without = bench.build(model, "quiet", profile=profile_with("server-cuda", **asked))
    assert ACTIVATIONS not in half_record(without).matched

    asked["calibration"] = {"data": str(samples)}
    built = bench.build(model, "loud", profile=profile_with("server-cuda", **asked))
    assert "square" in half_record(built).kept
    assert "'square' 1e+06" in built.finding("AOTC-N029")
    assert "AOTC-N019" not in built.codes()


@without_cuda
def test_a_sample_that_does_not_run_takes_nothing_from_the_others(bench: Workbench) -> None:
    """Shapes alone are checked of calibration data: an index may have no row in its table."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="rows"),
        helper.make_node("Mul", ["rows", "x"], ["scaled"], name="scaled"),
        helper.make_node("Mul", ["scaled", "scaled"], ["square"], name="square"),
        helper.make_node("Sqrt", ["square"], ["root"], name="root"),
        *small.dense("root", "weight", "y"),
    ]
    model = small.model_of(
        nodes,
        [
            helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["batch"]),
            info("x", ["batch", 8]),
        ],
        [info("y", ["batch", 8])],
        [
            numpy_helper.from_array(np.ones((4, 8), np.float32), "table"),
            small.weight("weight", 8, 8),
        ],
    )
    samples = bench.folder / "rows.npz"
    scales = np.array([1, 1, 1000], np.float32)
    np.savez(samples, ids=np.array([0, 9, 3]), x=np.repeat(scales[:, None], 8, axis=1))
    asked = {
        "precision": "float16",
        "budgets": {},
        "dims": {"batch": "1..4"},
        "calibration": {"data": str(samples)},
    }
    built = bench.build(model, "rows", profile=profile_with("server-cuda", **asked))
    assert "square" in half_record(built).kept
    assert "1 samples of the calibration data do not run" in built.finding("AOTC-N013")


@pytest.mark.parametrize(
    ("fields", "tune", "observes"),
    [
        ({"precision": "float16", "providers": ["cuda", "cpu"]}, False, True),
        ({"precision": "bfloat16", "providers": ["cuda"]}, False, True),
        ({"precision": "float16", "providers": ["cpu"]}, False, False),
        ({"precision": "float16", "providers": ["openvino"]}, False, False),
        ({"precision": "float16", "providers": ["openvino", "cpu"]}, False, True),
        ({"precision": "keep", "providers": ["cuda", "cpu"]}, True, False),
        (
            {"providers": ["cuda", "cpu"], "tune": {"precision": ["float16"]}},
            True,
            True,
        ),
        (
            {"providers": ["cuda", "cpu"], "tune": {"precision": ["float16"]}},
            False,
            False,
        ),
    ],
)
def test_calibration_data_counts_where_half_precision_is_computed(
    fields: dict[str, Any], tune: bool, observes: bool
) -> None:
    profile = decode(Profile, {"schema": "aotc.profile/1", "name": "p", **fields})
    assert observes_half(profile, tune=tune) is observes


def openvino_profile(**fields: Any) -> Any:
    whole = {"partitioning": {"weigh_boundaries": False}, "dims": {"batch": 2}}
    return profile_with("edge-openvino", precision="float16", **{**whole, **fields})


@needs_openvino
def test_openvino_does_not_get_what_overflows(bench: Workbench) -> None:
    """OpenVINO computes all that it gets in half precision, and gives 65504 for what is larger."""
    if "avx512_fp16" not in _isa():
        pytest.skip("OpenVINO computes in float16 only on CPUs with avx512_fp16")
    built = bench.build(overflowing(), "openvino", profile=openvino_profile())
    (variant,) = built.manifest.variants
    assert variant.parity.status == "passed"
    assert "'n_c'" in built.finding("AOTC-N029")
    assert "AOTC-P013" not in built.codes(), "a comparison had to find it"
    placed = {node.name for node in built.nodes()}
    assert {"n_c", "n_d"} <= placed
    assert "a_product" not in placed


@needs_openvino
def test_openvino_does_not_get_what_the_profile_keeps(bench: Workbench) -> None:
    if "avx512_fp16" not in _isa():
        pytest.skip("OpenVINO computes in float16 only on CPUs with avx512_fp16")
    kept = {"keep_float32": ["b_*"]}
    built = bench.build(overflowing(), "openvino-kept", profile=openvino_profile(**kept))
    placed = {node.name for node in built.nodes()}
    assert {"b_product", "b_tanh"} <= placed
    alone = openvino_profile(
        keep_float32=["a_product"], providers=["openvino"], fallback={"policy": "fail"}
    )
    built = bench.build(small.plain(256), "openvino-alone", profile=alone)
    assert "no other provider of the variant could take" in built.finding("AOTC-N030")


def _isa() -> tuple[str, ...]:
    from aotc.host.probe import probe

    return probe().isa or ()
