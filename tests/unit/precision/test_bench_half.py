"""Values that the judge's bench rounds to half precision, as a provider stores them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from model_parts import model_of
from onnx import TensorProto, helper, numpy_helper

from benchmarks.judge.variants import rounded_to_half, session

TYPES: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def made_model(opset: int) -> onnx.ModelProto:
    """`y = (x * w) + w` with a free batch."""
    shape = ["batch", 8]
    weight = np.random.default_rng(3).normal(0, 1, 8).astype(np.float32)
    return model_of(
        [
            helper.make_node("Mul", ["x", "w"], ["product"], name="mul"),
            helper.make_node("Add", ["product", "w"], ["y"], name="add"),
        ],
        inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        outputs=[helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        initializers=[numpy_helper.from_array(weight, "w")],
        opset=opset,
    )


@pytest.mark.parametrize("half", TYPES)
@pytest.mark.parametrize("opset", [11, 17])
def test_each_value_is_rounded_once(half: str, opset: int, tmp_path: Path) -> None:
    model = made_model(opset)
    given = np.random.default_rng(4).normal(0, 1, (64, 8)).astype(np.float32)
    made = tmp_path / "half.onnx"
    onnx.save(rounded_to_half(model, half, [{"x": given}]), made)
    (found,) = session(made).run(None, {"x": given})

    def near(values: Any) -> Any:
        return values.astype(TYPES[half]).astype(np.float32)

    weight = near(numpy_helper.to_array(model.graph.initializer[0]))
    np.testing.assert_array_equal(found, near(near(near(given) * weight) + weight))


def test_what_leaves_the_range_stays_as_it_is(tmp_path: Path) -> None:
    given = np.full((2, 8), 1e6, np.float32) + np.arange(8, dtype=np.float32)
    made = tmp_path / "half.onnx"
    onnx.save(rounded_to_half(made_model(17), "float16", [{"x": given}]), made)
    (found,) = session(made).run(None, {"x": given})
    assert np.isfinite(found).all()
    assert len(np.unique(found[0])) == 8
