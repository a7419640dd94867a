"""Fused exports on a GPU: the answers are the original's, also with an empty past."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from on_gpu import ROTARY, network_path

from aotc.graph.passes.fuse_for_cuda import fuse
from aotc.providers.cuda import CudaBackend

pytestmark = pytest.mark.gpu

SIZES = {"batch": 2, "sequence": 5}


def inputs(model: onnx.ModelProto, past: int) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    sizes = {**SIZES, "past_sequence": past, "total": SIZES["sequence"] + past}
    found: dict[str, Any] = {}
    for value in model.graph.input:
        shape = [dim.dim_value or sizes[dim.dim_param] for dim in value.type.tensor_type.shape.dim]
        if "mask" in value.name:
            found[value.name] = np.ones(shape, np.int64)
            found[value.name][0, :2] = 0
        elif value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            found[value.name] = rng.integers(0, 2, shape)
        else:
            found[value.name] = rng.standard_normal(shape).astype(np.float32)
    return found


@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("name", ["bert", "decoder", "gpt2", "vit", *ROTARY])
def test_the_answers_are_those_of_the_original(name: str, past: int) -> None:
    backend = CudaBackend()
    assert not backend.probe().why_not
    backend.prepare()
    model = onnx.load(network_path(name))
    fused, records = fuse(model, Path())
    assert records
    given = inputs(model, past)
    options = backend.session("all").provider_options[backend.ort_name]
    on_gpu = ort.InferenceSession(
        fused.SerializeToString(), providers=[(backend.ort_name, dict(options))]
    )
    # ONNX Runtime leaves a provider that does not start out of the session.
    assert backend.ort_name in on_gpu.get_providers()
    on_cpu = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for one, other in zip(on_gpu.run(None, given), on_cpu.run(None, given), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
