"""What learning measures is what a build would run: options of CUDA, and the fused graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from aotc.backends.base import SessionUse
from aotc.backends.cpu import CpuBackend
from aotc.backends.cuda import CudaBackend
from aotc.contract.codec.parsing import encode
from aotc.contract.cuda_options import CudaOptions
from aotc.learning.measure import measured_graph, session_spec

BERT = Path("tests/data/exports/bert.onnx").resolve()


def asked(fuses: bool) -> dict[str, Any]:
    return {
        "graph": str(BERT),
        "weights": str(BERT.parent),
        "providers": ["cuda", "cpu"],
        "plugins": encode({}),
        "fuses": fuses,
    }


def test_the_fused_graph_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = onnx.load(measured_graph(asked(True))).graph
    assert [node.op_type for node in graph.node].count("Attention") == 2
    assert measured_graph(asked(False)) == BERT


@pytest.mark.parametrize("layout", ["auto", "nchw"])
def test_convolutions_are_measured_in_their_layout(layout: Any) -> None:
    use = SessionUse(cuda=CudaOptions(layout=layout, search="exhaustive"), convolutional=True)
    spec = session_spec([CudaBackend(), CpuBackend()], "tf32", use)
    options = spec.provider_options["CUDAExecutionProvider"]
    assert options["use_tf32"] == "1"
    assert options["cudnn_conv_algo_search"] == "EXHAUSTIVE"
    assert ("prefer_nhwc" in options) == (layout == "auto")
