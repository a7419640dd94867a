"""The cost of one run, counted from ONNX Runtime's profile instead of timed.

The profile of an unoptimized session lists every node's input and output shapes.  Floating-point
operations follow from them for the operators that dominate (convolutions, matrix products,
recurrences); every other node counts one operation per output element.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aotc.records import record

_WIDTH = {"float": 4, "int64": 8, "double": 8, "float16": 2, "bfloat16": 2, "int32": 4}


@record(kw_only=False)
class RunCost:
    """Bytes of all nodes' outputs, and floating-point operations, of one run."""

    activation_bytes: int
    flops: float


def read_profile(path: Path) -> list[RunCost]:
    """The costs of the runs in a profile that ONNX Runtime wrote, in order."""
    runs: list[RunCost] = []
    activations, flops = 0, 0.0
    for event in json.loads(path.read_text(errors="replace")):
        if event.get("cat") == "Session" and event.get("name") == "model_run":
            runs.append(RunCost(activations, flops))
            activations, flops = 0, 0.0
        elif event.get("cat") == "Node" and event.get("name", "").endswith("_kernel_time"):
            size, operations = _node_cost(event["args"])
            activations += size
            flops += operations
    return runs


def _node_cost(args: Mapping[str, Any]) -> tuple[int, float]:
    inputs = [_size_and_shape(entry) for entry in args.get("input_type_shape", ())]
    outputs = [_size_and_shape(entry) for entry in args.get("output_type_shape", ())]
    size = sum(width * math.prod(shape) for width, shape in outputs)
    elements = sum(math.prod(shape) for _, shape in outputs)
    kind = args.get("op_name", "")
    if not inputs or not outputs:
        return size, float(elements)
    shape = inputs[0][1]
    if "Conv" in kind and len(inputs) > 1:
        weight = inputs[1][1]
        dense = math.prod(weight) / max(1, weight[0] if weight else 1)
        return size, 2.0 * elements * dense
    if ("MatMul" in kind or "Gemm" in kind or "Attention" in kind) and shape:
        return size, 2.0 * elements * max(shape[-1], 1)
    if kind in ("LSTM", "GRU", "RNN") and len(inputs) > 2:
        steps = math.prod(shape[:2]) if len(shape) > 1 else 1
        return size, 2.0 * steps * (math.prod(inputs[1][1]) + math.prod(inputs[2][1]))
    return size, float(elements)


def _size_and_shape(entry: Mapping[str, list[int]]) -> tuple[int, tuple[int, ...]]:
    for dtype, shape in entry.items():
        return _WIDTH.get(dtype, 1), tuple(shape)
    return 0, (0,)


@record(kw_only=False)
class Growth:
    """How one figure grows with one dim: a parabola through up to three points."""

    points: tuple[tuple[int, float], ...]

    def at(self, size: int) -> float:
        """The figure at `size` (Lagrange interpolation); from the last point on never below it."""
        total = 0.0
        for i, (x, y) in enumerate(self.points):
            weight = 1.0
            for j, (other, _) in enumerate(self.points):
                if i != j:
                    weight *= (size - other) / (x - other)
            total += y * weight
        last_size, last = self.points[-1]
        if len(self.points) == 1:
            total = last * max(1.0, size / max(last_size, 1))
        return max(total, last if size >= last_size else 0.0)
