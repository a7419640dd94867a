"""A writer of trial graphs for tests: ONNX Runtime's own static quantizer, on a model of products.

Activations have one scale for each tensor, and those of its products alone are quantized.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from aotc.pipeline.blame import TrialGraph
from aotc.spec.codec import Json


class _Data(CalibrationDataReader):
    """What ranges are observed on: the arrays of one file."""

    def __init__(self, path: str) -> None:
        with np.load(path) as found:
            self._data: Iterator[Mapping[str, Any]] = iter([dict(found)])

    def get_next(self) -> Mapping[str, Any] | None:
        """The next sample."""
        return next(self._data, None)


def write_int8(asked: Json, kept: frozenset[str], folder: Path) -> TrialGraph:
    """The model of `asked` with all products quantized that are not kept."""
    source = onnx.load(asked["model"])
    changed = [node.name for node in source.graph.node if node.op_type == "MatMul"]
    changed = [name for name in changed if name not in kept]
    path = folder / "model.onnx"
    if asked.get("fails_with", "") in kept:
        path.write_bytes(b"no model")
        return TrialGraph(model=path, weights=folder, changed=tuple(changed))
    if asked.get("nothing_without", "") in kept:
        return TrialGraph(model=Path(asked["model"]), weights=folder, changed=())
    quantize_static(
        asked["model"],
        path,
        _Data(asked["data"]),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["MatMul"],
        nodes_to_exclude=sorted(kept) or None,
        per_channel=True,
        reduce_range=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return TrialGraph(model=path, weights=folder, changed=tuple(changed))
