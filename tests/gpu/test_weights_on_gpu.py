"""Weights in 8 and 4 bits on CUDA: placed there, captured, proven, and as exact as on the CPU."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from on_gpu import CUDA, built, close_to, operators, told_of
from onnx import TensorProto, helper, numpy_helper

import aotc

pytestmark = pytest.mark.gpu
# Products from each to the next: in whole blocks of 256; in a part of one; with columns and then
# rows that are no multiple of 8, which the kernels of few rows want.
WIDTHS = (256, 448, 192, 350, 256)
# Of calls: one row, as many as the kernels of few rows take, and many.
ROWS = (1, 5, 300)
# Random weights in 4 bits are less exact than trained ones.
PARITY = {"int4": {"atol": 0.05, "rtol": 0.5, "min_cosine": 0.9, "max_slice": 1.0}}
# Of the largest value, to the same integers in float64.
ERRORS = {"auto": 5e-3, "float16": 1e-2, "bfloat16": 5e-2}


def products() -> bytes:
    """Rows of [rows, 256] times matrices, with tanh between them."""
    chance = np.random.default_rng(1)
    nodes, matrices, value = [], [], "x"
    for number, (depth, columns) in enumerate(pairwise(WIDTHS)):
        values = chance.standard_normal((depth, columns)) / np.sqrt(depth)
        matrices.append(numpy_helper.from_array(values.astype(np.float32), f"matrix_{number}"))
        nodes.append(helper.make_node("MatMul", [value, f"matrix_{number}"], [f"wide_{number}"]))
        value = f"bounded_{number}"
        nodes.append(helper.make_node("Tanh", [f"wide_{number}"], [value]))
    shape: list[str | int] = ["rows", WIDTHS[0]]
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
        matrices,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


def unpacked(payload: Path, folder: Path) -> list[Any]:
    """The matrices that a built graph's products stand for, float64 [depth, columns].

    Graph and weights are copied to one folder, as onnx reads them.
    """
    for pattern in ("model/*/model.onnx", "shared_assets/*/weights.bin"):
        (file,) = payload.glob(pattern)
        shutil.copy(file, folder)
    graph = onnx.load(folder / "model.onnx").graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    found = []
    for node in graph.node:
        if node.op_type != "MatMulNBits":
            continue
        stated = {each.name: each.i for each in node.attribute}
        bits, columns, depth = stated["bits"], stated["N"], stated["K"]
        integers = _apart(stored[node.input[1]].reshape(columns, -1), bits)
        blocks = integers.reshape(columns, -1, stated["block_size"])
        scales = stored[node.input[2]].astype(np.float64).reshape(columns, -1, 1)
        zeros: Any = 1 << bits - 1
        if len(node.input) > 3:
            zeros = _apart(stored[node.input[3]].reshape(columns, -1), bits)
            zeros = zeros[:, : blocks.shape[1], None]
        found.append(((blocks - zeros) * scales).reshape(columns, -1)[:, :depth].T)
    return found


def _apart(values: Any, bits: int) -> Any:
    """Integers of bytes, the lower half of each byte first."""
    if bits == 8:
        return values.astype(np.int64)
    return np.stack([values & 15, values >> 4], axis=-1).reshape(len(values), -1).astype(np.int64)


def by_hand(matrices: list[Any], rows: Any) -> Any:
    for matrix in matrices:
        rows = np.tanh(rows @ matrix)
    return rows


@pytest.mark.parametrize(
    ("precision", "activations", "settings"),
    [
        ("int8", "auto", {}),
        ("int8", "float16", {"block_size": 256, "symmetric": False}),
        ("int4", "auto", {"block_size": 16, "symmetric": False}),
        ("int4", "float16", {}),
        ("int4", "bfloat16", {"block_size": 128, "symmetric": False}),
    ],
)
def test_what_is_built_runs_as_it_was_promised(
    tmp_path: Path, precision: str, activations: str, settings: dict[str, Any]
) -> None:
    source = tmp_path / "products.onnx"
    source.write_bytes(products())
    artifact = built(
        source,
        tmp_path,
        {"rows": {"min": 1, "buckets": list(ROWS), "outside": "pad"}},
        precision=precision,
        parity=PARITY,
        quantization={"form": "weights", "activations": activations, **settings},
    )
    with aotc.load(artifact.path) as model:
        variant = model.variant
        assert (variant.precision, variant.parity.status) == (precision, "passed")
        assert (variant.placement.origin, variant.placement.share[CUDA]) == ("observed", 1.0)
        matrices = unpacked(model.payload, tmp_path)
        assert operators(model)["MatMulNBits"] == len(matrices) == len(WIDTHS) - 1
        captures = model.report.variants[0].captures
        assert captures is not None and len(captures.captured) == len(ROWS)
        for number in (*ROWS, 3):
            chance = np.random.default_rng(number)
            given = {"x": chance.standard_normal((number, WIDTHS[0])).astype(np.float32)}
            (found,) = model.run(given).values()
            close_to(found, by_hand(matrices, given["x"]), ERRORS[activations])
            np.testing.assert_array_equal(found, *model.run(given).values())
        assert not told_of(model)
