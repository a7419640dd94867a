"""Products with weights in blocks of integers, with values that would saturate in 16 bits.

Run as a program, `ANSWERS` (a path), it writes their pickled answers on this machine's CPU.
"""

from __future__ import annotations

import itertools
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

ROWS, DEPTH, COLUMNS = 7, 256, 32
# Bits of weights; the level, of which 4 quantizes activations, for kernels that multiply integers;
# the size of blocks, and whether they have zero points.
Case = tuple[int, int, int, bool]
CASES: tuple[Case, ...] = tuple(
    itertools.product((4, 8), (0, 4), (16, 32, 64, 128, 256), (False, True))
)


def model(bits: int, accuracy: int, block: int, zeros: bool) -> onnx.ModelProto:
    """Mostly the largest weights, and some of the smallest; zero points are the smallest."""
    chance = np.random.default_rng(bits)
    blocks = DEPTH // block
    weights = chance.choice(
        np.array([255, 255, 255, 0], np.uint8), (COLUMNS, blocks, block * bits // 8)
    )
    constants = {"w": weights, "s": np.full((COLUMNS, blocks), 0.01, np.float32)}
    if zeros:
        constants["z"] = np.zeros((COLUMNS, (blocks * bits + 7) // 8), np.uint8)
    node = helper.make_node(
        "MatMulNBits",
        ["x", *constants],
        ["y"],
        domain="com.microsoft",
        name="product",
        K=DEPTH,
        N=COLUMNS,
        bits=bits,
        block_size=block,
        accuracy_level=accuracy,
    )
    graph = helper.make_graph(
        [node],
        "blocks",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, DEPTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, COLUMNS])],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def answers() -> dict[Case, Any]:
    """The answer of each case to mostly large activations."""
    chance = np.random.default_rng(1)
    activation = chance.choice(np.array([3, 3, 3, -3], np.float32), (ROWS, DEPTH))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    found = {}
    for case in CASES:
        session = ort.InferenceSession(
            model(*case).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        found[case] = session.run(None, {"x": activation})[0]
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(pickle.dumps(answers()))
