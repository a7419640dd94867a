"""Networks as torch exports them here: at newer opsets, and in half precision from the start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from on_gpu import ATTENTION, CUDA, NETWORK_DIMS, ROTARY, built, not_on_cuda, note, operators

import aotc

pytestmark = pytest.mark.gpu
EXPORTER = Path(__file__).parents[2] / "benchmarks" / "networks" / "exports.py"
FORMS = {"float32": 23, "float16": 18}
# torch gives the rotary tables one row, which ONNX Runtime takes for a batch of one alone.
ONE_ROW = ("llama_eager", "llama_sdpa", "gpt_neox", "modernbert")


def export(name: str, dtype: str, folder: Path) -> Path:
    """The small network, exported by the torch that is here."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    command = [sys.executable, str(EXPORTER), str(folder), name, "--small"]
    command += ["--dtype", dtype, "--opset", str(FORMS[dtype])]
    # The exporter needs no GPU.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / f"{name}.onnx"


@pytest.mark.parametrize("dtype", list(FORMS))
@pytest.mark.parametrize("name", list(NETWORK_DIMS))
def test_an_export_of_today_is_fused_and_captured(name: str, dtype: str, tmp_path: Path) -> None:
    dims: dict[str, Any] = dict(NETWORK_DIMS[name])
    if name in ONE_ROW:
        dims["batch"] = 1
    # No floating-point operation may be on the CPU.
    artifact = built(export(name, dtype, tmp_path), tmp_path, dims, budgets={"cpu_share": 0.0})
    with aotc.load(artifact.path) as model:
        found = operators(model)
        note(f"{name} exported in {dtype}", dict(found))
        assert model.variant.parity.status == "passed"
        assert model.variant.placement.origin == "observed"
        assert not_on_cuda(model) == []
        assert model._runners[0].captured
        if name == "resnet50":
            assert dict(model.variant.session.provider_options[CUDA])["prefer_nhwc"] == "1"
            return
        # Every layer's softmax is inside an attention.
        assert sum(found[op] for op in ATTENTION) >= 2
        assert not found["Softmax"]
        assert found["RotaryEmbedding"] == ROTARY.get(name, 0)
