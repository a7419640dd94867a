"""Variants in float16 and bfloat16 from float32 models, built without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import openvino_models as small
import pytest
from gpu_models import residual
from made_profiles import profile_with
from model_parts import constant, info
from onnx import TensorProto, helper
from repository import ROOT
from third_party_models import MODELS, needs_models
from workbench import Built, Workbench

from aotc.base.errors import AotcError
from aotc.providers.cuda import CudaBackend
from aotc.spec.profile import Profile
from aotc.spec.variant import PassRecord

pytestmark = pytest.mark.skipif(
    CudaBackend().probe().runs, reason="this machine runs CUDA: tests/gpu are for it"
)
EXPORTS = ROOT / "tests" / "data" / "exports"
WIDTH = 256
HALF, BFLOAT, FLOAT = TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT


def profile(precision: str, **fields: Any) -> Profile:
    budgets: dict[str, Any] = {"budgets": {}, "unproven": "allow", "dims": {"batch": "1..4"}}
    return profile_with("server-cuda", precision=precision, **{**budgets, **fields})


def record_of(built: Built, variant: str = "portable") -> PassRecord | None:
    (chosen,) = (item for item in built.manifest.variants if item.name == variant)
    return next((item for item in chosen.passes if item.name == "half-precision"), None)


def weights_of(built: Built, variant: str = "portable") -> dict[str, onnx.TensorProto]:
    (chosen,) = (item for item in built.manifest.variants if item.name == variant)
    model = onnx.load(built.payload / chosen.model, load_external_data=False)
    return {tensor.name: tensor for tensor in model.graph.initializer}


def data_bytes(built: Built) -> int:
    return sum(path.stat().st_size for path in built.payload.rglob("*.bin"))


def wide(width: int = WIDTH) -> onnx.ModelProto:
    return small.plain(width)


def planted() -> onnx.ModelProto:
    """Two dense layers; between them a product of 160000 which is undone, and a cap of 1e6."""

    def node(op: str, given: list[str], made: str) -> onnx.NodeProto:
        return helper.make_node(op, given, [made], name=f"n_{made}")

    return small.model_of(
        [
            *small.dense("x", "first", "a"),
            node("Mul", ["a", "up"], "b"),
            node("Mul", ["b", "up"], "c"),
            node("Mul", ["c", "down"], "d"),
            *small.dense("d", "second", "e"),
            node("Min", ["e", "cap"], "f"),
            *small.dense("f", "third", "y"),
        ],
        [info("x", ["batch", 32])],
        [info("y", ["batch", 32])],
        [
            *(small.weight(name, 32, 32) for name in ("first", "second", "third")),
            constant("up", np.float32(400)),
            constant("down", np.float32(1 / 160000)),
            constant("cap", np.float32(1e6)),
        ],
    )


@pytest.fixture(scope="module")
def half(bench: Workbench) -> Built:
    return bench.build(wide(), "half", profile=profile("float16"))


@pytest.fixture(scope="module")
def full(bench: Workbench) -> Built:
    return bench.build(wide(), "full", profile=profile("keep"))


def test_the_pass_is_recorded_and_the_variant_says_its_precision(half: Built) -> None:
    (variant,) = half.manifest.variants
    made = record_of(half)
    assert made is not None
    assert (made.options, made.matched, made.kept) == (
        {"to": "float16"}, {"casts": 2, "converted": 4}, (),
    )  # fmt: skip
    assert (variant.precision, variant.parity.arithmetic) == ("float16", "float16")
    assert variant.parity.tolerance == profile("float16").parity.float16
    assert (half.manifest.inputs[0].dtype, half.manifest.outputs[0].dtype) == (
        "float32", "float32",
    )  # fmt: skip
    (evidence,) = half.report.variants
    errors = [error for one in evidence.unpartitioned for error in one.outputs]
    assert errors
    assert all(error.passed for error in errors)
    assert max(error.max_abs for error in errors) > 1e-5, "this is float32"


def test_the_weights_take_half_the_bytes(half: Built, full: Built) -> None:
    assert {tensor.data_type for tensor in weights_of(half).values()} == {HALF}
    assert data_bytes(full) == 2 * WIDTH * WIDTH * 4
    assert data_bytes(half) == data_bytes(full) / 2


def test_two_builds_give_the_same_artifact(bench: Workbench, half: Built) -> None:
    again = bench.build(half.source, "again", profile=profile("float16"), cache=False)
    assert again.report.artifact_id == half.report.artifact_id


def test_variants_share_what_is_equal(bench: Workbench, half: Built, full: Built) -> None:
    """In float16 twice and in float32: each content is stored once."""
    variants = [
        {"name": "portable"},
        {"name": "other", "threads": 2},
        {"name": "exact", "precision": "keep"},
    ]
    built = bench.build(half.source, "three", profile=profile("float16", variants=variants))
    assert data_bytes(built) == data_bytes(half) + data_bytes(full)
    kinds = {
        name: {tensor.data_type for tensor in weights_of(built, name).values()}
        for name in ("portable", "other", "exact")
    }
    assert kinds == {"portable": {HALF}, "other": {HALF}, "exact": {FLOAT}}
    assert [item.precision for item in built.manifest.variants] == ["float16", "float16", "keep"]


def test_buckets_share_their_half_weights(bench: Workbench, half: Built) -> None:
    dims = {"batch": {"min": 1, "max": 4, "buckets": [2, 4], "outside": "pad"}}
    # Captured sizes would be those of one variant.
    static = {"graphs": {"capture": "none"}}
    built = bench.build(half.source, "buckets", profile=profile("float16", dims=dims, cuda=static))
    assert len(built.manifest.variants) == 2
    assert data_bytes(built) == data_bytes(half)
    assert all(record_of(built, item.name) for item in built.manifest.variants)


@pytest.mark.parametrize(
    ("precision", "kept", "matched"),
    [
        (
            "float16",
            ("n_c", "n_d", "n_f"),
            {
                "casts": 6,
                "converted": 7,
                "kept: activations out of range": 1,
                "kept: constants out of range": 1,
                "kept: reads values out of range": 1,
            },
        ),
        # It has the range of float32, and no digits to lose.
        ("bfloat16", (), {"casts": 2, "converted": 10}),
    ],
)
def test_what_leaves_the_range_is_kept_and_nothing_else(
    bench: Workbench, precision: str, kept: tuple[str, ...], matched: dict[str, int]
) -> None:
    loose = {"bfloat16": {"atol": 0.05, "rtol": 0.1, "min_cosine": 0.99}}
    built = bench.build(planted(), f"planted-{precision}", profile=profile(precision, parity=loose))
    made = record_of(built)
    assert made is not None
    assert (made.kept, made.matched) == (kept, matched)
    constants = weights_of(built)
    assert {name for name, one in constants.items() if one.data_type == FLOAT} == (
        {"up", "down", "cap"} if kept else set()
    )


def spectrum(first: str) -> onnx.ModelProto:
    """The logarithm of powers, which are as small as 1e-8; `first` is an operator before them."""

    def node(op: str, given: list[str], made: str) -> onnx.NodeProto:
        return helper.make_node(op, given, [made], name=f"n_{made}")

    return small.model_of(
        [
            node("MatMul", ["x", "first"], "m"),
            node(first, ["m"], "a"),
            node("Mul", ["a", "small"], "b"),
            node("Mul", ["b", "b"], "power"),
            node("Max", ["power", "floor"], "c"),
            node("Log", ["c"], "d"),
            *small.dense("d", "second", "y"),
        ],
        [info("x", ["batch", 32])],
        [info("y", ["batch", 32])],
        [
            *(small.weight(name, 32, 32) for name in ("first", "second")),
            constant("small", np.float32(1e-3)),
            constant("floor", np.float32(1e-7)),
        ],
    )


POWERS = ("n_b", "n_power", "n_c", "n_d")


@pytest.mark.parametrize(
    ("precision", "first", "kept", "logarithms"),
    [
        ("float16", "Tanh", POWERS, 4),
        # No activation before it: the model starts with a transform, which is kept as a whole.
        ("float16", "Neg", ("n_m", "n_a", *POWERS), 6),
        # CUDA has no logarithm in bfloat16.
        ("bfloat16", "Neg", ("n_d",), 0),
    ],
)
def test_logarithms_of_small_numbers_are_kept(
    bench: Workbench, precision: str, first: str, kept: tuple[str, ...], logarithms: int
) -> None:
    loose = {"bfloat16": {"atol": 0.05, "rtol": 0.1, "min_cosine": 0.99}}
    built = bench.build(
        spectrum(first), f"spectrum-{precision}-{first}", profile=profile(precision, parity=loose)
    )
    made = record_of(built)
    assert made is not None
    assert made.kept == kept
    assert made.matched.get("kept: logarithms", 0) == logarithms


@needs_models
def test_a_model_of_sound_is_within_float16s_tolerance(bench: Workbench) -> None:
    """Its spectrum in float16 would be 12 times as far from the original."""
    one = {"serving_default_input_2:0.0": 1}
    built = bench.build(
        MODELS / "basic_pitch_nmp.onnx", "sound", profile=profile("float16", dims=one)
    )
    made = record_of(built)
    assert made is not None
    assert made.matched["kept: logarithms"] > 50


def test_bfloat16_keeps_what_cuda_lacks(bench: Workbench) -> None:
    """CUDA has convolutions in bfloat16 from opset 22 on."""
    older = bench.build(residual(18, np.float32), "older", profile=profile("bfloat16"))
    made = record_of(older)
    assert made is not None
    assert made.matched["kept: no kernel"] >= 5
    assert set(made.kept) >= {node.name for node in older.nodes() if node.op_type == "Conv"}
    (variant,) = older.manifest.variants
    assert variant.placement.share == {"CUDAExecutionProvider": 1.0}
    assert (variant.precision, variant.parity.arithmetic) == ("bfloat16", "bfloat16")


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("bert", 0),
        ("resnet50", 0),
        ("llama_sdpa", 4),
        *(pytest.param(name, 0, marks=pytest.mark.slow) for name in ("vit", "gpt2", "whisper")),
    ],
)
def test_exports_compute_in_float16(bench: Workbench, name: str, positions: int) -> None:
    built = bench.build(
        EXPORTS / f"{name}.onnx", f"export-{name}", profile=profile("float16", dims={})
    )
    made = record_of(built)
    assert made is not None
    assert len(made.kept) == made.matched.get("kept: positions", 0) == positions
    (variant,) = built.manifest.variants
    assert (variant.precision, variant.parity.arithmetic) == ("float16", "float16")
    (evidence,) = built.report.variants
    assert all(error.passed for one in evidence.unpartitioned for error in one.outputs)


def test_a_breach_is_told_with_the_tolerance_of_the_type(bench: Workbench, half: Built) -> None:
    tight = {"float16": {"atol": 0.0, "rtol": 1e-7, "min_cosine": 0.0}}
    with pytest.raises(AotcError) as refused:
        bench.build(half.source, "tight", profile=profile("float16", parity=tight))
    assert refused.value.code == "AOTC-N001"
    assert refused.value.expected == (
        "error <= 0 + 1e-07 * max|reference|, cosine >= 0, "
        "rms error of every slice <= 0.01 * its scale"
    )


def test_a_model_in_half_precision_stays_as_it_is(bench: Workbench) -> None:
    built = bench.build(residual(18), "given", profile=profile("float16"))
    assert record_of(built) is None
    assert "AOTC-N011" not in built.codes()
    (variant,) = built.manifest.variants
    assert (variant.precision, variant.parity.arithmetic) == ("float16", "float16")


def double() -> onnx.ModelProto:
    """A product in float64."""
    weight = constant("w", np.eye(8))
    return small.model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        [info("x", ["batch", 8], TensorProto.DOUBLE)],
        [info("y", ["batch", 8], TensorProto.DOUBLE)],
        [weight],
    )


@pytest.mark.parametrize(
    ("model", "precision", "why"),
    [
        (double, "float16", "the model computes nothing in float32"),
        (lambda: residual(18), "bfloat16", "the model is in float16"),
    ],
)
def test_other_models_are_left_with_a_finding(
    bench: Workbench, model: Any, precision: str, why: str
) -> None:
    built = bench.build(model(), f"left-{precision}", profile=profile(precision))
    assert built.finding("AOTC-N011") == (
        f"variant portable: precision {precision}: {why}, and is left unchanged"
    )
    assert record_of(built) is None
    assert built.manifest.variants[0].precision == "keep"


def test_a_model_of_which_nothing_changes_is_refused(bench: Workbench) -> None:
    """A branch without a product is not worth casts."""
    branch = helper.make_graph(
        [helper.make_node("Sin", ["x"], ["t"], name="inner")],
        "then", [], [info("t", ["batch", 8])],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Tanh", ["x"], ["e"], name="other")],
        "else", [], [info("e", ["batch", 8])],
    )  # fmt: skip
    model = small.model_of(
        [helper.make_node("If", ["c"], ["y"], name="if", then_branch=branch, else_branch=other)],
        [info("x", ["batch", 8]), info("c", [], TensorProto.BOOL)],
        [info("y", ["batch", 8])],
    )
    with pytest.raises(AotcError) as refused:
        bench.build(model, "nothing", profile=profile("float16"))
    assert refused.value.code == "AOTC-N012"
    assert refused.value.what == "no node can compute in float16"
    assert refused.value.where == "variant portable"
    assert refused.value.found == "2 kept: subgraphs without products"


@pytest.mark.slow
@needs_models
def test_magika_keeps_the_sum_that_overflows(bench: Workbench) -> None:
    source = MODELS / "magika_v3_3.onnx"
    built = bench.build(source, "magika", profile=profile("float16", dims={}))
    made = record_of(built)
    assert made is not None
    reasons = ("kept: activations out of range", "kept: reads values out of range")
    assert [made.matched[why] for why in reasons] == [1, 1]
    assert len(made.kept) == 2
    assert all("LayerNorm_1" in name for name in made.kept)
