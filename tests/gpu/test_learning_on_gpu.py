"""Learning on a GPU measures what a build would run: in half precision, with captured graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from networks import attention, residual
from on_gpu import note

from aotc.spec.codec import encode
from aotc.spec.payload import Value
from aotc.spec.providers import CudaOptions
from aotc.tools.learn_costs import _Bench, measure_job

pytestmark = pytest.mark.gpu


def request(network: bytes, folder: Path, inputs: list[Value], dim: str) -> dict[str, Any]:
    (folder / "network.onnx").write_bytes(network)
    return {
        "graph": str(folder / "network.onnx"),
        "weights": str(folder),
        "inputs": [encode(value) for value in inputs],
        "hints": {},
        "dims": [dim],
        "sizes": {dim: [1, 2, 4]},
        "between": {dim: [3]},
        "recorded": {dim: [1, 2, 3, 4]},
        "others": {},
        "follows": {},
        "seconds": 0.5,
        "threads": None,
        "seed": 1,
        "providers": ["cuda", "cpu"],
        "plugins": encode({}),
        "precision": "float16",
        "keep_float32": [],
        "quantized": False,
        "captures": True,
        "cuda_options": encode(CudaOptions()),
        "fuses": True,
    }


@pytest.mark.parametrize("name", ["attention", "residual"])
def test_costs_are_those_in_half_precision(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "attention":
        rows = Value(name="x", dtype="float32", shape=(2, "seq", 128))
        asked = request(attention(128, heads=2), tmp_path, [rows], "seq")
    else:
        image = Value(name="image", dtype="float32", shape=("batch", 3, 224, 224))
        asked = request(residual(20, np.float32), tmp_path, [image], "batch")
    bench = _Bench(asked)
    kinds = {tensor.data_type for tensor in bench._model.graph.initializer}
    casts = [node for node in bench._model.graph.node if node.op_type == "Cast"]
    assert onnx.TensorProto.FLOAT not in kinds
    assert casts
    assert bench._captured is not None
    found = measure_job(asked)
    note(f"costs of {name} in float16", {key: found[key] for key in ("static", "new_size_seconds")})
    assert len(found["static"]) == 3
    assert len(found["dynamic"]) == 4
    assert found["new_size_seconds"] >= 0
