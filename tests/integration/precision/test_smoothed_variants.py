"""Builds in int8 of models with large channels and outliers: exact where they were not before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from made_profiles import profile_with
from model_parts import model_of
from onnx import TensorProto, helper, numpy_helper
from planted_models import residual_network, with_outliers
from refusals import refusal
from workbench import Built, Workbench

from aotc.spec.variant import PassRecord

WIDTH = 512
# The range of each value from its smallest to its largest, and nothing smoothed.
PLAIN = {"method": "percentile", "percentile": 100.0}


def planted() -> onnx.ModelProto:
    model = residual_network(4, WIDTH, scale=0.04)
    for name in ("product 1", "product 3"):
        model = with_outliers(model, name, channels=3)
    return model


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibration") / "data.npz"
    np.savez(path, x=np.random.default_rng(0).standard_normal((64, WIDTH)).astype(np.float32))
    return path


def int8(form: str, **fields: Any) -> Any:
    stated = {"precision": "int8", "quantization": {"form": form}, "blame": {"trials": 0}}
    return profile_with("edge", **{**stated, "parity": {"random_shapes": 0}, **fields})


def passes(built: Built) -> dict[str, PassRecord]:
    return {made.name: made for made in built.manifest.variants[0].passes}


@pytest.mark.parametrize("form", ["static", "dynamic"])
def test_large_channels_are_smoothed(form: str, bench: Workbench, data: Path) -> None:
    options = {"dims": {"n": "1..64"}, "calibration": data}
    refused = refusal(
        bench.build, planted(), "plain", profile=int8(form, calibration=PLAIN), **options
    )
    assert refused.code == "AOTC-N001"
    built = bench.build(planted(), f"smoothed-{form}", profile=int8(form), **options)
    made = passes(built)["smooth-activations"]
    assert dict(made.matched) == {"products": 2, "values": 2, "added": 0}
    assert made.nodes_after == made.nodes_before
    assert "AOTC-N019" not in built.codes()
    x = np.random.default_rng(1).standard_normal((8, WIDTH)).astype(np.float32)
    with bench.load(built) as model:
        (found,) = model.run({"x": x}).values()
    (expected,) = bench_answers(built, x)
    assert np.abs(found - expected).max() < 0.03 * np.abs(expected).max()


def test_weights_beside_the_model_are_smoothed_too(bench: Workbench, data: Path) -> None:
    source = bench.folder / "beside" / "model.onnx"
    source.parent.mkdir()
    onnx.save(planted(), source, save_as_external_data=True, location="w.bin", size_threshold=0)
    built = bench.build(
        source, "beside", profile=int8("static"), dims={"n": "1..64"}, calibration=data
    )
    assert passes(built)["smooth-activations"].matched["products"] == 2


def bench_answers(built: Built, x: Any) -> list[Any]:
    import onnxruntime as ort

    return list(ort.InferenceSession(built.source).run(None, {"x": x}))


def test_without_data_nothing_is_smoothed(bench: Workbench) -> None:
    model = residual_network(2, WIDTH, scale=0.04)
    built = bench.build(model, "without", profile=int8("dynamic"), dims={"n": "1..64"})
    assert "smooth-activations" not in passes(built)


def test_what_has_no_large_channels_is_built_as_before(bench: Workbench, data: Path) -> None:
    model = residual_network(2, WIDTH, scale=0.04)
    built = bench.build(
        model, "even", profile=int8("static"), dims={"n": "1..64"}, calibration=data
    )
    made = passes(built)
    assert "smooth-activations" not in made
    assert "clipped ranges" not in made["quantize"].matched
    assert made["quantize"].options["method"] == "auto"


# Outliers that are cut off.


ROWS = 64


def rare(folder: Path) -> Path:
    """Samples of which one value in two million is large."""
    x = np.random.default_rng(2).standard_normal((64 * ROWS, WIDTH)).astype(np.float32)
    x[5, 100] = 30.0
    np.savez(folder / "rare.npz", x=x)
    return folder / "rare.npz"


def one_product(weight: float) -> onnx.ModelProto:
    """A product of x, whose channel 100 has weights of its own size."""
    weights = np.random.default_rng(3).standard_normal((WIDTH, WIDTH)).astype(np.float32) / 20
    weights[100] *= weight
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "product"),
        helper.make_node("Tanh", ["m"], ["y"], "activation"),
    ]
    shape = [ROWS, WIDTH]
    return model_of(
        nodes,
        inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        outputs=[helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        initializers=[numpy_helper.from_array(weights, "w")],
    )


@pytest.mark.parametrize(("weight", "clipped"), [(0.01, 1), (2.0, 0)], ids=["idle", "read"])
def test_outliers_are_cut_off_unless_an_answer_needs_them(
    weight: float, clipped: int, bench: Workbench, tmp_path: Path
) -> None:
    """The first sample has one: without it, an answer of the second model is wrong."""
    loose = {"atol": 0.5, "rtol": 0.5, "min_cosine": 0.9, "max_slice": 1.0}
    profile = int8("static", parity={"random_shapes": 0, "int8": loose})
    built = bench.build(
        one_product(weight), f"rare-{clipped}", profile=profile, calibration=rare(tmp_path)
    )
    assert passes(built)["quantize"].matched.get("clipped ranges", 0) == clipped
