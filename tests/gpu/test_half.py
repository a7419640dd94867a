"""Half precision from float32 models: inputs and outputs keep their types, parity is proven."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from on_gpu import CUDA, Built, close_to, note
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
