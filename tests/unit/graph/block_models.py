"""Products with weights in blocks of integers, with values that would saturate in 16 bits.

Run as a program, `ANSWERS` (a path), it writes their pickled answers on this machine's CPU.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

ROWS, DEPTH, COLUMNS, BLOCK = 7, 256, 32, 32
# Bits of weights, and the level: 4 quantizes activations, for kernels that multiply integers.
CASES = tuple((bits, accuracy) for bits in (4, 8) for accuracy in (0, 4))


def model(bits: int, accuracy: int) -> onnx.ModelProto:
    """Mostly the largest weights, and some of the smallest."""
    chance = np.random.default_rng(bits)
    blocks = DEPTH // BLOCK
    shape = (COLUMNS, blocks, BLOCK * bits // 8)
    weights = chance.choice(np.array([255, 255, 255, 0], np.uint8), shape)
    scales = np.full(COLUMNS * blocks, 0.01, np.float32)
    node = helper.make_node(
        "MatMulNBits",
        ["x", "w", "s"],
        ["y"],
        domain="com.microsoft",
        name="product",
        K=DEPTH,
        N=COLUMNS,
        bits=bits,
        block_size=BLOCK,
        accuracy_level=accuracy,
    )
    graph = helper.make_graph(
        [node],
        "blocks",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, DEPTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, COLUMNS])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(scales, "s")],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def answers() -> dict[tuple[int, int], Any]:
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
