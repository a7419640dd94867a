"""What quantizing says where a library is missing, or activations that no sample shows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.base.errors import AotcError
from aotc.pipeline.integers import record_findings, write_quantized
from aotc.spec.codec import encode
from aotc.spec.precision import QuantizationSpec


@pytest.fixture
def request_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    weights = np.random.default_rng(0).standard_normal((128, 128)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 128])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 128])],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), "source.onnx")

    def request(form: str, **fields: Any) -> dict[str, Any]:
        return {
            "graph": "source.onnx",
            "graph_weights": ".",
            "source": "source.onnx",
            "weights": ".",
            "folder": "kept",
            "form": form,
            "bits": 8,
            "quantization": encode(QuantizationSpec(), full=True),
            "reduce_range": False,
            "blocks": {},
            "method": "minmax",
            "percentile": 99.99,
            "samples": [],
            "compared": [],
            "tolerance": {},
            "kept": [],
            "unfused": [],
            "isa": [],
            "sizes": {},
            "goal": "speed",
            "opset": "auto",
            "runs": [],
            "where": "variant portable",
            **fields,
        }

    return request


def test_without_the_library_of_blocks(request_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "onnxruntime.quantization.matmul_nbits_quantizer"
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(AotcError) as caught:
        write_quantized(request_of("weights"), (), Path("quantized.onnx"))
    assert (caught.value.code, caught.value.expected) == ("AOTC-O016", "onnx_ir")


def test_activations_that_no_sample_shows(request_of: Any) -> None:
    with pytest.raises(AotcError) as caught:
        write_quantized(request_of("static"), (), Path("quantized.onnx"))
    assert (caught.value.code, caught.value.found) == ("AOTC-N015", "1 kept: not observed")


def test_what_the_quantizer_passes_over_is_not_counted(
    request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph that was written says what is quantized."""
    monkeypatch.setattr("aotc.precision.quantize.quantize_blocks", lambda *given: None)
    with pytest.raises(AotcError) as caught:
        write_quantized(request_of("weights"), (), Path("quantized.onnx"))
    assert caught.value.code == "AOTC-N015"
    assert caught.value.found == "1 kept: passed over by the quantizer"


def test_the_finding_counts_nodes() -> None:
    from aotc.spec.variant import PassRecord

    record = PassRecord(
        name="quantize", nodes_before=3, nodes_after=5, matched={"kept: not observed": 2}
    )
    (finding,) = record_findings(record, "variant portable")
    assert (finding.code, finding.where) == ("AOTC-O014", "variant portable")
    assert finding.what == (
        "activations of 2 nodes were not observed on the calibration data, and stay float32"
    )
