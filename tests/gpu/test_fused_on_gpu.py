"""Transformers as torch exports them: fused, wholly on CUDA, captured, in each precision."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from networks import attention as attention_of_rows
from on_gpu import ATTENTION, CUDA, NETWORK_DIMS, built, not_on_cuda, note, operators

import aotc

pytestmark = pytest.mark.gpu
EXPORTS = Path(__file__).parents[1] / "data" / "exports"
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


@pytest.mark.parametrize("precision", ["keep", "tf32", "float16"])
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformer_is_fused_and_captured(name: str, precision: str, tmp_path: Path) -> None:
    artifact = built(
        EXPORTS / f"{name}.onnx", tmp_path, NETWORK_DIMS[name], precision=precision, **ON_CUDA
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
        assert matched
        assert model._runners[0].captured


def test_convolutions_are_laid_out_for_cuda_and_captured(tmp_path: Path) -> None:
    dims = {**NETWORK_DIMS["resnet50"], "batch": {"buckets": [1, 2], "outside": "pad"}}
    artifact = built(EXPORTS / "resnet50.onnx", tmp_path, dims, precision="float16", **ON_CUDA)
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
