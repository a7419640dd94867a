"""Half precision from float32 models: inputs and outputs keep their types, parity is proven."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from on_gpu import CUDA, Built, built, close_to, note
from onnx import TensorProto, helper, numpy_helper
from residual_artifacts import EXACT, image, residual_artifact

import aotc

pytestmark = pytest.mark.gpu
# Shares of the largest value: parity has other measures, and is asserted too.
ERRORS = {"tf32": 5e-3, "float16": 2e-2, "bfloat16": 1e-1}


@pytest.mark.parametrize("precision", list(ERRORS))
def test_a_float32_model_in_half(precision: str, without_graphs: Built, tmp_path: Path) -> None:
    artifact = residual_artifact(tmp_path, EXACT, precision=precision)
    with aotc.load(artifact.path) as model, aotc.load(without_graphs.path) as exact:
        variant = model.variant
        kept = {one.name: one.kept for one in variant.passes if one.kept}
        note(precision, {"share": dict(variant.placement.share), "kept in float32": kept})
        assert (variant.precision, variant.parity.status) == (precision, "passed")
        assert variant.parity.arithmetic == precision
        assert variant.placement.origin == "observed"
        assert variant.placement.share[CUDA] == 1.0
        assert [value.dtype for value in (*model.inputs, *model.outputs)] == ["float32", "float32"]
        for batch in (1, 4):
            given = image(batch)
            found, expected = model.run(given)["logits"], exact.run(given)["logits"]
            assert found.dtype == np.float32
            close_to(found, expected, ERRORS[precision])
            # It did compute in another precision.
            assert not np.array_equal(found, expected)


def test_a_convolution_without_an_algorithm_in_half_is_in_float32(tmp_path: Path) -> None:
    """As wav2vec2 encodes positions: cuDNN has no plan for it in half with channels last."""
    chance = np.random.default_rng(0)
    shapes = {"first": (768, 768, 1), "second": (768, 768, 1), "third": (768, 768, 1)}
    shapes["positions"] = (768, 48, 128)
    nodes, given = [], "x"
    for name in shapes:
        options = {"group": 16, "pads": [64, 64]} if name == "positions" else {}
        nodes += [
            helper.make_node("Conv", [given, f"w_{name}"], [f"{name}_wide"], name, **options),
            helper.make_node("Tanh", [f"{name}_wide"], [f"{name}_bounded"], f"{name} bounded"),
        ]
        given = f"{name}_bounded"
    graph = helper.make_graph(
        nodes,
        "positions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 768, 249])],
        [helper.make_tensor_value_info(given, TensorProto.FLOAT, ["batch", 768, 250])],
        [
            numpy_helper.from_array(
                (chance.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32),
                f"w_{name}",
            )
            for name, shape in shapes.items()
        ],
    )
    path = tmp_path / "positions.onnx"
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    artifact = built(path, tmp_path, {"batch": {"buckets": [1, 8]}}, precision="float16")
    with aotc.load(artifact.path) as model:
        variant, codes = model.variant, [each.code for each in artifact.report.findings]
        note("positions in half", codes)
        assert variant.parity.status == "passed" and variant.placement.share[CUDA] == 1.0
        kept = {name for each in variant.passes for name in each.kept}
        assert ("AOTC-N081" in codes) == ("positions" in kept)
