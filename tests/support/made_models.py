"""Small models written by the tests, valid and invalid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from model_parts import OPSET, model_of
from onnx import TensorProto, helper, numpy_helper

FEATURES = 16


def linear(*, opset: int = OPSET, features: int = FEATURES) -> onnx.ModelProto:
    """`y = x @ W` with a free batch."""
    weight = np.random.default_rng(20261121).standard_normal((features, features))
    shape = ["batch", features]
    return model_of(
        [helper.make_node("MatMul", ["x", "W"], ["y"], name="product")],
        inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        outputs=[helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        initializers=[numpy_helper.from_array(weight.astype(np.float32), "W")],
        opset=opset,
    )


def save(model: onnx.ModelProto, path: Path) -> Path:
    """Write a model unchanged, without any check."""
    path.write_bytes(model.SerializeToString())
    return path


def save_external(folder: Path, location: str = "weights.bin") -> tuple[Path, bytes]:
    """Write the linear model with weights at `location`, without that file; with its bytes."""
    model = linear()
    (weight,) = model.graph.initializer
    content = weight.raw_data
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", 0), ("length", len(content))):
        weight.external_data.add(key=key, value=str(value))
    return save(model, folder / "external.onnx"), content


def endless() -> onnx.ModelProto:
    """A loop of 2^62 rounds."""
    scalar = helper.make_tensor_value_info("total", TensorProto.FLOAT, [1])
    body = helper.make_graph(
        [
            helper.make_node("Add", ["total_in", "total_in"], ["total_out"]),
            helper.make_node("Identity", ["going"], ["goes_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("total_in", TensorProto.FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("total_out", TensorProto.FLOAT, [1]),
        ],
    )
    return model_of(
        [helper.make_node("Loop", ["rounds", "", "x"], ["total"], name="loop", body=body)],
        inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        outputs=[scalar],
        initializers=[numpy_helper.from_array(np.array(2**62, np.int64), "rounds")],
    )


def looping(rounds: int) -> onnx.ModelProto:
    """A loop that adds its input `rounds` times."""
    names = (("going", TensorProto.BOOL, []), ("sum", TensorProto.FLOAT, [1]))
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum_in", "x"], ["sum_out"], name="add"),
            helper.make_node("Identity", ["going_in"], ["going_out"], name="go_on"),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            *(helper.make_tensor_value_info(f"{name}_in", *rest) for name, *rest in names),
        ],
        [helper.make_tensor_value_info(f"{name}_out", *rest) for name, *rest in names],
    )
    return model_of(
        [helper.make_node("Loop", ["rounds", "", "x"], ["total"], name="loop", body=body)],
        inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        outputs=[helper.make_tensor_value_info("total", TensorProto.FLOAT, [1])],
        initializers=[numpy_helper.from_array(np.array(rounds, np.int64), "rounds")],
    )


def enormous(count: int = 16 << 30) -> onnx.ModelProto:
    """A tensor of `count` floats (64 GiB) from an input of one number."""
    return model_of(
        [
            helper.make_node("ConstantOfShape", ["shape"], ["zeros"], name="fill"),
            helper.make_node("Add", ["zeros", "x"], ["sum"], name="add"),
            helper.make_node("ReduceMax", ["sum"], ["y"], name="most", keepdims=0),
        ],
        inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        outputs=[helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
        initializers=[numpy_helper.from_array(np.array([count], np.int64), "shape")],
    )
