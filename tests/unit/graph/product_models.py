"""One node of each operator that multiplies 8-bit integers, with values that would saturate.

Run as a program, `REQUESTS ANSWERS` (paths), it runs pickled models on this machine's CPU.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import model_parts
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

ROWS, DEPTH, COLUMNS = 8, 256, 64
CHANNELS, SIZE = 32, 8
_KINDS = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "float32": TensorProto.FLOAT}
_DOMAIN = "com.microsoft"

model_of = partial(model_parts.model_of, domains=(_DOMAIN,))


def product(
    activation: int = TensorProto.UINT8, zero: Any = None, columns: int = 4
) -> onnx.ModelProto:
    """A MatMulInteger with the largest weights."""
    weights = np.full((DEPTH, columns), 127, np.int8)
    constants = [numpy_helper.from_array(weights, "w")]
    inputs = ["x", "w"]
    if zero is not None:
        constants.append(numpy_helper.from_array(np.asarray(zero), "z"))
        inputs += ["", "z"]
    return model_of(
        [helper.make_node("MatMulInteger", inputs, ["y"], name="one")],
        [helper.make_tensor_value_info("x", activation, [ROWS, DEPTH])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        constants,
    )


def _extreme(dtype: str, shape: Sequence[int], bits: int = 8, seed: int = 0) -> Any:
    """Mostly the largest value, and some of the smallest, of `bits` bits."""
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    if bits == 7:
        least, most = (-64, 63) if least else (0, 127)
    chance = np.random.default_rng(seed)
    return chance.choice(np.array([most, most, most, least], dtype=dtype), size=shape)


@dataclass(frozen=True)
class Case:
    """An operator, the types of its operands, and the bits of its weights."""

    op: str
    domain: str
    left: str
    right: str
    bits: int
    saturates: bool

    def __str__(self) -> str:
        return f"{self.op}-{self.left}-{self.right}-{self.bits}"

    def activation(self) -> Any:
        if self.left == "float32":
            chance = np.random.default_rng(1)
            shape = (4, 1, CHANNELS) if self.op == "DynamicQuantizeLSTM" else (ROWS, DEPTH)
            return chance.choice(np.array([1, 1, 1, -1], np.float32), size=shape)
        shape = (ROWS, DEPTH)
        if "Conv" in self.op:
            shape = (1, CHANNELS, SIZE, SIZE)  # type: ignore[assignment]
        if self.op == "QAttention":
            shape = (1, ROWS, CHANNELS)  # type: ignore[assignment]
        return _extreme(self.left, shape, seed=1)

    def model(self) -> onnx.ModelProto:
        inputs, constants, attributes, output = getattr(self, f"_{self.op}")()
        node = helper.make_node(
            self.op, inputs, ["y"], name="one", domain=self.domain, **attributes
        )
        return model_of(
            [node],
            [helper.make_tensor_value_info("x", _KINDS[self.left], self.activation().shape)],
            [helper.make_tensor_value_info("y", output, None)],
            constants,
        )

    def _weights(self, *shape: int) -> Any:
        return _extreme(self.right, shape, self.bits, seed=2)

    def _zero(self) -> Any:
        return np.array(128 if self.left == "uint8" else 0, self.left)

    def _points(self, scale: float) -> dict[str, Any]:
        """Scales and zero points of left, right and output."""
        left = "uint8" if self.left == "float32" else self.left
        return {
            "xs": np.float32(0.02),
            "xz": np.array(128 if left == "uint8" else 0, left),
            "ws": np.float32(0.01),
            "wz": np.array(0, self.right),
            "ys": np.float32(scale),
            "yz": np.array(128 if left == "uint8" else 0, left),
        }

    def _MatMulInteger(self) -> Any:
        return ["x", "w"], {"w": self._weights(DEPTH, COLUMNS)}, {}, TensorProto.INT32

    def _ConvInteger(self) -> Any:
        constants = {"w": self._weights(16, CHANNELS, 3, 3), "xz": self._zero()}
        return ["x", "w", "xz"], constants, {}, TensorProto.INT32

    def _QLinearMatMul(self) -> Any:
        constants = {"w": self._weights(DEPTH, COLUMNS), **self._points(1.0)}
        inputs = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
        return inputs, constants, {}, _KINDS[self.left]

    def _QLinearConv(self) -> Any:
        constants = {"w": self._weights(16, CHANNELS, 3, 3), **self._points(2.0)}
        inputs = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
        return inputs, constants, {}, _KINDS[self.left]

    def _QGemm(self) -> Any:
        constants = {"w": self._weights(DEPTH, COLUMNS), **self._points(1.0)}
        inputs = ["x", "xs", "xz", "w", "ws", "wz", "", "ys", "yz"]
        return inputs, constants, {}, _KINDS[self.left]

    def _MatMulIntegerToFloat(self) -> Any:
        points = self._points(1.0)
        constants = {"w": self._weights(DEPTH, COLUMNS), "xs": points["xs"], "ws": points["ws"]}
        return ["x", "w", "xs", "ws"], constants, {}, TensorProto.FLOAT

    def _QAttention(self) -> Any:
        constants = {
            "w": self._weights(CHANNELS, 3 * CHANNELS),
            "b": np.zeros(3 * CHANNELS, np.float32),
            "xs": np.float32(0.01),
            "ws": np.float32(0.01),
        }
        return ["x", "w", "b", "xs", "ws"], constants, {"num_heads": 2}, TensorProto.FLOAT

    def _DynamicQuantizeMatMul(self) -> Any:
        constants = {"w": self._weights(DEPTH, COLUMNS), "ws": np.float32(0.01)}
        return ["x", "w", "ws"], constants, {}, TensorProto.FLOAT

    def _DynamicQuantizeLSTM(self) -> Any:
        hidden = 16
        points = {
            "ws": np.array([0.01], np.float32),
            "wz": np.zeros(1, self.right),
            "rs": np.array([0.01], np.float32),
            "rz": np.zeros(1, self.right),
        }
        weights = {
            "w": self._weights(1, CHANNELS, 4 * hidden),
            "r": self._weights(1, hidden, 4 * hidden),
        }
        inputs = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
        return inputs, {**weights, **points}, {"hidden_size": hidden}, TensorProto.FLOAT


def _cases() -> list[Case]:
    found = []
    for op, domain in (
        ("MatMulInteger", ""),
        ("QLinearMatMul", ""),
        ("QLinearConv", ""),
        ("QGemm", _DOMAIN),
        ("MatMulIntegerToFloat", _DOMAIN),
        ("QAttention", _DOMAIN),
    ):
        for bits in (7, 8):
            found.append(Case(op, domain, "uint8", "uint8", bits, False))
            found.append(Case(op, domain, "uint8", "int8", bits, bits == 8))
            if op != "QAttention":
                found.append(Case(op, domain, "int8", "int8", bits, False))
    for bits in (7, 8):
        found.append(Case("ConvInteger", "", "uint8", "int8", bits, False))
        found.append(Case("ConvInteger", "", "int8", "uint8", bits, bits == 8))
        for op in ("DynamicQuantizeMatMul", "DynamicQuantizeLSTM"):
            found.append(Case(op, _DOMAIN, "float32", "uint8", bits, False))
            found.append(Case(op, _DOMAIN, "float32", "int8", bits, bits == 8))
    return found


CASES = _cases()


def answer(model: onnx.ModelProto, case: Case) -> Any:
    """The only output, computed without graph optimizations."""
    return _answer(model.SerializeToString(), case.activation())


def _answer(model: bytes, activation: Any) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": activation})[0]


def main(requests_path: str, answers_path: str) -> None:
    by_name = {str(case): case for case in CASES}
    models: dict[tuple[str, str], bytes] = pickle.loads(Path(requests_path).read_bytes())
    answers = {key: _answer(model, by_name[key[0]].activation()) for key, model in models.items()}
    Path(answers_path).write_bytes(pickle.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
