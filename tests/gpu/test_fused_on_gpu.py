"""Transformers as torch exports them: fused, wholly on CUDA, captured, in each precision."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from networks import attention as attention_of_rows
from on_gpu import (
    ATTENTION,
    CUDA,
    NETWORK_DIMS,
    ROTARY,
    built,
    close_to,
    network_path,
    not_on_cuda,
    note,
    operators,
)
from onnx import TensorProto, numpy_helper

import aotc

pytestmark = pytest.mark.gpu
TRANSFORMERS = [name for name in NETWORK_DIMS if name != "resnet50"]
# No floating-point operation may be on the CPU.
ON_CUDA = {"budgets": {"cpu_share": 0.0}}


RUN = """
import sys
import numpy as np
import aotc
with aotc.load(sys.argv[1]) as model:
    for size in (5, 9):
        rows = np.ones((2, size, 128), np.float32)
        np.testing.assert_allclose(model.run({"x": rows})["y"], rows, rtol=1e-2)
"""


# The graph of TF32 is that of float32.
@pytest.mark.parametrize(
    ("name", "precision"),
    [("bert", "tf32"), *((name, kind) for name in TRANSFORMERS for kind in ("keep", "float16"))],
)
def test_a_transformer_is_fused_and_captured(name: str, precision: str, tmp_path: Path) -> None:
    artifact = built(
        network_path(name), tmp_path, NETWORK_DIMS[name], precision=precision, **ON_CUDA
    )
    with aotc.load(artifact.path) as model:
        variant, found = model.variant, operators(model)
        share = dict(variant.placement.share)
        matched = {one.name: dict(one.matched) for one in variant.passes if one.matched}
        note(f"{name} {precision}", {"share": share, "matched": matched, "operators": dict(found)})
        assert variant.parity.status == "passed"
        assert variant.placement.origin == "observed"
        assert not_on_cuda(model) == []
        # Every layer's softmax is inside an attention.
        assert sum(found[op] for op in ATTENTION) >= 2
        assert not found["Softmax"]
        assert found["RotaryEmbedding"] == ROTARY.get(name, 0)
        assert matched
        assert model._runners[0].captured


def with_large_weights(name: str, folder: Path) -> Path:
    """The network with weights so large that masks and positions show in its answers."""
    model = onnx.load(network_path(name))
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.ndim == 2 and values.std() < 0.1:
            tensor.CopyFrom(numpy_helper.from_array(values * np.float32(15), tensor.name))
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def given(path: Path, dims: dict[str, Any], seed: int) -> dict[str, Any]:
    """Inputs of these sizes; the first half of the first item is padding."""
    rng, found = np.random.default_rng(seed), {}
    for value in onnx.load(path).graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value or dims[dim.dim_param] for dim in kind.shape.dim]
        if "mask" in value.name:
            found[value.name] = np.ones(shape, np.int64)
            found[value.name][0, : shape[1] // 2] = 0
        elif kind.elem_type == TensorProto.INT64:
            found[value.name] = rng.integers(0, 60, shape)
        else:
            found[value.name] = rng.standard_normal(shape).astype(np.float32)
    return found


@pytest.mark.parametrize("name", ROTARY)
def test_replays_in_half_turn_by_the_positions_of_each_call(name: str, tmp_path: Path) -> None:
    """Each answer is the original's, and the first inputs are answered alike at the end.

    Not where a row sees nothing, as half precision has other masks there (`docs/limits.md`): in
    ModernBERT's windows, positions amid padding.
    """
    path, dims = with_large_weights(name, tmp_path), NETWORK_DIMS[name]
    artifact = built(path, tmp_path, dims, precision="float16", **ON_CUDA)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    original = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    with aotc.load(artifact.path) as model:
        assert operators(model)["RotaryEmbedding"] == ROTARY[name]
        assert model._runners[0].captured
        calls = [given(path, dims, seed) for seed in range(4)]
        answers = [model.run(call) for call in calls]
        for call, answer in zip(calls, answers, strict=True):
            expected = original.run(None, call)
            for (output, found), wanted in zip(answer.items(), expected, strict=True):
                shown = call["attention_mask"] > 0 if name == "modernbert" else ...
                note(f"{name} {output}", float(np.abs(found - wanted)[shown].max()))
                close_to(found[shown], wanted[shown], 1e-2)
        again = model.run(calls[0])
        assert all(np.array_equal(again[output], answers[0][output]) for output in again)


def test_convolutions_are_laid_out_for_cuda_and_captured(tmp_path: Path) -> None:
    dims = {**NETWORK_DIMS["resnet50"], "batch": {"buckets": [1, 2], "outside": "pad"}}
    artifact = built(network_path("resnet50"), tmp_path, dims, precision="float16", **ON_CUDA)
    with aotc.load(artifact.path) as model:
        options = dict(model.variant.session.provider_options[CUDA])
        note("resnet50", options)
        assert options["prefer_nhwc"] == "1"
        assert not_on_cuda(model) == []
        assert model.variant.parity.status == "passed"
        assert model.variant.placement.origin == "observed"
        assert all(runner.captured for runner in model._runners)


@pytest.mark.parametrize("attention", ["auto", "without-cudnn"])
def test_attention_is_kept_from_cudnn_where_the_profile_says_so(
    attention: str, gpu: str, tmp_path: Path
) -> None:
    """By what ONNX Runtime says of the kernels that it takes; it prefers cuDNN from 9.0 on."""
    network = tmp_path / "attention.onnx"
    network.write_bytes(attention_of_rows(128, heads=2))
    cuda = {"attention": attention, "graphs": {"capture": "sizes"}}
    dims = {"batch": 2, "seq": "1..64"}
    artifact = built(network, tmp_path, dims, precision="float16", cuda=cuda)
    said = subprocess.run(
        [sys.executable, "-c", RUN, str(artifact.path)],
        env={**os.environ, "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    text = said.stdout.decode(errors="replace")
    assert said.returncode == 0, text
    kernels = set(re.findall(r"SdpaKernel=(\w+)", text))
    note(f"kernels of attention, {attention}", sorted(kernels))
    assert kernels
    if attention == "without-cudnn" or float(gpu) >= 9:
        assert ("CUDNN_FLASH_ATTENTION" in kernels) == (attention == "auto")
