"""Half precision on ONNX Runtime's CPU: weights stored in it, computed with in float32."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import openvino_models as small
import pytest
from made_profiles import profile_with
from model_parts import info
from onnx import TensorProto, helper, numpy_helper
from repository import ROOT
from third_party_models import MODELS, needs_models
from workbench import Built, Workbench

from aotc.base.errors import AotcError
from aotc.graph.view import every_graph
from aotc.pipeline.half import read_tensor
from aotc.precision.half_conversion import StoreInHalf
from aotc.spec.variant import PassRecord

EXPORTS = ROOT / "tests" / "data" / "exports"
WIDTH = 256
TYPES = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
BOTH = {"variants": [{"name": "portable"}, {"name": "native", "isa": "host"}]}


def profile(precision: str, **fields: Any) -> Any:
    return profile_with(
        "edge", precision=precision, **{"dims": {"batch": "1..4"}, "budgets": {}, **fields}
    )


def record_of(built: Built, variant: str = "portable") -> PassRecord:
    (chosen,) = (item for item in built.manifest.variants if item.name == variant)
    (made,) = (item for item in chosen.passes if item.name == "store-in-half")
    return made


def weights_of(built: Built, variant: str = "portable") -> dict[str, onnx.TensorProto]:
    (chosen,) = (item for item in built.manifest.variants if item.name == variant)
    model = onnx.load(built.payload / chosen.model, load_external_data=False)
    return {tensor.name: tensor for graph in every_graph(model) for tensor in graph.initializer}


def data_bytes(built: Built) -> int:
    return sum(path.stat().st_size for path in built.payload.rglob("*.bin"))


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_weights_are_stored_in_half_and_computed_with_in_float32(
    bench: Workbench, precision: str
) -> None:
    built = bench.build(small.plain(WIDTH), precision, profile=profile(precision))
    (variant,) = built.manifest.variants
    made = record_of(built)
    assert made.options == {"to": precision, "computed_in": "float32"}
    assert (made.matched, made.kept) == ({"weights": 2}, ())
    assert (variant.precision, variant.parity.status, variant.parity.arithmetic) == (
        precision, "passed", precision,
    )  # fmt: skip
    assert {one.data_type for one in weights_of(built).values()} == {TYPES[precision]}
    assert data_bytes(built) == 2 * WIDTH * WIDTH * 2
    assert built.finding("AOTC-N028") == (
        "variant portable: ONNX Runtime's CPU provider computes in float32: 2 weights are stored "
        f"in {precision}, 262144 of 524288 bytes are saved, and calls take as long as before"
    )
    # On the real session, and no more than the roundings of weights.
    (evidence,) = built.report.variants
    errors = [error for one in evidence.comparisons for error in one.outputs]
    assert all(error.passed for error in errors)
    assert 0 < max(error.max_abs for error in errors) < 0.02


def test_every_level_keeps_the_half_storage(bench: Workbench) -> None:
    """Folding the casts would write float32 weights; at load it does no harm."""
    native = {"name": "native", "isa": "host"}
    plain = {"name": "unfused", "optimization": "basic"}
    variants = [{"name": "portable"}, native, plain]
    built = bench.build(
        EXPORTS / "vit.onnx", "levels", profile=profile("float16", dims={}, variants=variants)
    )
    for name in ("portable", "native", "unfused"):
        large = [one for one in weights_of(built, name).values() if np.prod(one.dims) >= 256]
        assert {one.data_type for one in large} == {TensorProto.FLOAT16}
    levels = {item.name: item.session.optimization for item in built.manifest.variants}
    # Without folding, the casts would run in each call.
    assert levels == {"portable": "all", "native": "basic", "unfused": "basic"}


def test_convolutions_in_the_layout_of_the_host(bench: Workbench) -> None:
    built = bench.build(
        EXPORTS / "resnet50.onnx",
        "layout",
        profile=profile("bfloat16", dims={"height": 64, "width": 64, "batch": 2}, **BOTH),
    )
    for name in ("portable", "native"):
        assert TensorProto.BFLOAT16 in {one.data_type for one in weights_of(built, name).values()}
    inputs = built.inputs({"batch": 2, "height": 64, "width": 64})
    with bench.load(built, "native") as model:
        assert np.isfinite(model.run(inputs)["logits"]).all()


def test_what_cannot_be_held_and_what_the_profile_keeps_stays(bench: Workbench) -> None:
    model = small.plain(WIDTH)
    tensor = next(one for one in model.graph.initializer if one.name == "second")
    values = numpy_helper.to_array(tensor).copy()
    values[0, 0] = 1e6
    tensor.CopyFrom(numpy_helper.from_array(values, "second"))
    built = bench.build(model, "narrow", profile=profile("float16"))
    assert record_of(built).matched == {"weights": 1, "kept: constants out of range": 1}
    assert record_of(built).kept == ("y_product",)
    assert weights_of(built)["second"].data_type == TensorProto.FLOAT
    kept = bench.build(small.plain(WIDTH), "kept", profile=profile("float16", keep_float32=["a_*"]))
    assert record_of(kept).matched == {"weights": 1, "kept: profile": 1}
    assert weights_of(kept)["first"].data_type == TensorProto.FLOAT
    with pytest.raises(AotcError) as refused:
        bench.build(small.plain(WIDTH), "all", profile=profile("float16", keep_float32=["*"]))
    assert (refused.value.code, refused.value.found) == ("AOTC-N012", "2 kept: profile")
    with pytest.raises(AotcError) as refused:
        bench.build(small.plain(8), "small", profile=profile("float16"))
    assert (refused.value.code, refused.value.found) == ("AOTC-N012", "none takes 1024 bytes")


def test_weights_of_bodies_are_stored_in_half(bench: Workbench) -> None:
    branches = [
        helper.make_graph(
            [helper.make_node("MatMul", ["x", name], [f"{name}_t"], name=f"n_{name}")],
            name, [], [info(f"{name}_t", ["batch", 32])], [small.weight(name, 32, 32)],
        )
        for name in ("one", "two")
    ]  # fmt: skip
    model = small.model_of(
        [helper.make_node("If", ["c"], ["y"], "if", then_branch=branches[0],
                          else_branch=branches[1])],
        [info("x", ["batch", 32]), info("c", [], TensorProto.BOOL)],
        [info("y", ["batch", 32])],
    )  # fmt: skip
    built = bench.build(model, "bodies", profile=profile("float16"))
    assert record_of(built).matched == {"weights": 2}
    assert {one.data_type for one in weights_of(built).values()} == {TensorProto.FLOAT16}


@pytest.mark.parametrize("large", ["then", "else"])
def test_weights_of_one_name_in_two_branches_are_two(bench: Workbench, large: str) -> None:
    """One of them has a number that float16 does not hold, and which, must make no difference."""
    branches = []
    for branch in ("then", "else"):
        weight = small.weight("w", 32, 32)
        if branch == large:
            values = numpy_helper.to_array(weight).copy()
            values[0, 0] = 1e6
            weight = numpy_helper.from_array(values, "w")
        product = helper.make_node("MatMul", ["x", "w"], [f"{branch}_t"], name=f"n_{branch}")
        branches.append(
            helper.make_graph([product], branch, [], [info(f"{branch}_t", ["batch", 32])], [weight])
        )
    model = small.model_of(
        [helper.make_node("If", ["c"], ["y"], "if", then_branch=branches[0],
                          else_branch=branches[1])],
        [info("x", ["batch", 32]), info("c", [], TensorProto.BOOL)],
        [info("y", ["batch", 32])],
    )  # fmt: skip
    built = bench.build(model, f"same-{large}", profile=profile("float16"))
    assert record_of(built).matched == {"weights": 1, "kept: constants out of range": 1}
    assert record_of(built).kept == (f"n_{large}",)
    assert "1 weights are stored in float16, 2048 of 8192 bytes" in built.finding("AOTC-N028")
    stored = weights_of(built)
    kinds = sorted(tensor.data_type for tensor in stored.values())
    assert kinds == sorted((TensorProto.FLOAT, TensorProto.FLOAT16))
    inputs = {"x": np.eye(2, 32, dtype=np.float32)}
    with bench.load(built) as loaded:
        for chosen in (True, False):
            (answer,) = loaded.run({**inputs, "c": np.array(chosen)}).values()
            assert np.isfinite(answer).all()
            assert (answer.max() == 1e6) == (chosen == (large == "then"))


def test_no_pass_stores_a_finite_weight_as_an_infinite_one() -> None:
    model = small.plain(32)
    values = np.full((32, 32), 1e6, np.float32)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    with pytest.raises(RuntimeError, match="does not hold"):
        StoreInHalf(to="float16", read=read_tensor).apply(model)


def test_the_summary_says_what_is_computed_in_half(bench: Workbench) -> None:
    built = bench.build(small.plain(WIDTH), "shown", profile=profile("float16"))
    command = [sys.executable, "-m", "aotc.cli.main", "inspect", str(built.path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "all: only weights are stored in it" in shown


@pytest.mark.parametrize("name", ["bert", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_exports_are_about_half_as_large(bench: Workbench, name: str) -> None:
    full = bench.build(EXPORTS / f"{name}.onnx", f"{name}-full", profile=profile("keep", dims={}))
    half = bench.build(EXPORTS / f"{name}.onnx", name, profile=profile("float16", dims={}))
    # Weights that are smaller than a page are aligned to one.
    assert data_bytes(half) < 0.7 * data_bytes(full)
    assert all(one.passed for run in half.report.variants[0].comparisons for one in run.outputs)


@needs_models
def test_silero_with_its_branches(bench: Workbench) -> None:
    source = MODELS / "silero_vad_v6.onnx"
    built = bench.build(source, "silero", profile=profile("float16", dims={}))
    assert record_of(built).matched["weights"] > 20
    (model,) = built.payload.rglob("*.onnx")
    assert model.stat().st_size + data_bytes(built) < 0.75 * source.stat().st_size
