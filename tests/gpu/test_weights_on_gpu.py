"""Weights in 8 and 4 bits on CUDA: placed there, captured, proven, and as exact as on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from on_gpu import CUDA, built, close_to, operators
from onnx import TensorProto, helper, numpy_helper

import aotc

pytestmark = pytest.mark.gpu
# Neither is a multiple of 128; the second is none of 8, which the kernels of few rows want.
SIZES = ((192, 448), (200, 350))
# Of calls: one row, as many as the kernels of few rows take, more, and many.
ROWS = (1, 5, 16, 300)


def product(depth: int, columns: int) -> bytes:
    """Rows of [rows, depth] times a matrix, and back."""
    chance = np.random.default_rng(depth)

    def normal(name: str, *shape: int) -> Any:
        values = chance.standard_normal(shape) / np.sqrt(shape[0])
        return numpy_helper.from_array(values.astype(np.float32), name)

    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "up"], ["wide"], "first"),
            helper.make_node("Tanh", ["wide"], ["bounded"], "between"),
            helper.make_node("MatMul", ["bounded", "down"], ["y"], "second"),
        ],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", depth])],
        [normal("up", depth, columns), normal("down", columns, depth)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


# Random weights in 4 bits are less exact than trained ones.
PARITY = {"int4": {"atol": 0.05, "rtol": 0.5, "min_cosine": 0.9, "max_slice": 1.0}}
# Of the largest value, to the same integers in float32 on the CPU.
ERRORS = {"auto": 5e-3, "float16": 1e-2, "bfloat16": 5e-2}


@pytest.mark.parametrize(
    ("precision", "activations", "settings"),
    [
        ("int8", "auto", {}),
        ("int8", "float16", {"block_size": 256, "symmetric": False}),
        ("int4", "auto", {"block_size": 16, "symmetric": False}),
        ("int4", "float16", {}),
        ("int4", "bfloat16", {"block_size": 128, "symmetric": False}),
        ("int4", "float16", {"block_size": 256}),
    ],
)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_what_is_built_runs_as_it_was_promised(
    tmp_path: Path,
    sizes: tuple[int, int],
    precision: str,
    activations: str,
    settings: dict[str, Any],
) -> None:
    source = tmp_path / "product.onnx"
    source.write_bytes(product(*sizes))
    rows = {"min": 1, "buckets": list(ROWS), "outside": "pad"}
    stated = {"form": "weights", **settings}
    on_gpu = built(
        source,
        tmp_path,
        {"rows": rows},
        precision=precision,
        parity=PARITY,
        quantization={**stated, "activations": activations},
    )
    (tmp_path / "cpu").mkdir()
    on_cpu = built(
        source,
        tmp_path / "cpu",
        {"rows": {"min": 1, "max": ROWS[-1]}},
        precision=precision,
        parity=PARITY,
        providers=["cpu"],
        cuda={},
        quantization={**stated, "accuracy_level": 0},
    )
    with aotc.load(on_gpu.path) as model, aotc.load(on_cpu.path) as plain:
        variant = model.variant
        assert (variant.precision, variant.parity.status) == (precision, "passed")
        assert (variant.placement.origin, variant.placement.share[CUDA]) == ("observed", 1.0)
        assert operators(model)["MatMulNBits"] == 2
        captures = model.report.variants[0].captures
        assert captures is not None and len(captures.captured) == len(ROWS)
        for number in (*ROWS, 3):
            chance = np.random.default_rng(number)
            given = {"x": chance.standard_normal((number, sizes[0])).astype(np.float32)}
            found = model.run(given)["y"]
            close_to(found, plain.run(given)["y"], ERRORS[activations])
            np.testing.assert_array_equal(found, model.run(given)["y"])
        assert not model.findings()
