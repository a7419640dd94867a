"""What learning measures is what a build would run: options of CUDA, and the fused graph."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from aotc.providers.base import SessionUse
from aotc.providers.cpu import CpuBackend
from aotc.providers.cuda import CudaBackend
from aotc.session.inference import MODEL, write_optimized
from aotc.spec.codec import encode
from aotc.spec.providers import CudaOptions
from aotc.tools.learn_costs import in_precision, measured_graph, session_spec

BERT = Path("tests/data/exports/bert.onnx").resolve()


def asked(fuses: bool) -> dict[str, Any]:
    return {
        "graph": str(BERT),
        "weights": str(BERT.parent),
        "providers": ["cuda", "cpu"],
        "plugins": encode({}),
        "keep_float32": [],
        "fuses": fuses,
    }


def optimized(fused: bool) -> onnx.ModelProto:
    """As a worker has it, in the working directory."""
    write_optimized(measured_graph(asked(fused)), "basic", BERT.parent)
    return onnx.load(MODEL, load_external_data=False)


def weight_types(model: onnx.ModelProto) -> Counter[int]:
    return Counter(tensor.data_type for tensor in model.graph.initializer)


def test_the_fused_graph_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = onnx.load(measured_graph(asked(True))).graph
    assert [node.op_type for node in graph.node].count("Attention") == 2
    assert measured_graph(asked(False)) == BERT


@pytest.mark.parametrize("layout", ["auto", "nchw"])
def test_convolutions_are_measured_in_their_layout(layout: Any) -> None:
    use = SessionUse(
        cuda=CudaOptions(layout=layout, conv_algo_search="exhaustive"), operators=("Conv",) * 4
    )
    spec = session_spec([CudaBackend(), CpuBackend()], "tf32", use)
    options = spec.provider_options["CUDAExecutionProvider"]
    assert options["use_tf32"] == "1"
    assert options["cudnn_conv_algo_search"] == "EXHAUSTIVE"
    assert ("prefer_nhwc" in options) == (layout == "auto")


@pytest.mark.parametrize(("precision", "number"), [("float16", 10), ("bfloat16", 16)])
def test_half_precision_is_measured(
    precision: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = optimized(fused=True)
    before = weight_types(model)
    in_precision(model, {**asked(False), "precision": precision, "quantized": False})
    assert number not in before
    assert weight_types(model)[number] > weight_types(model)[onnx.TensorProto.FLOAT]


def test_what_is_measured_in_half_precision_has_the_answers_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By ONNX Runtime's CPU, which casts where it has no kernel."""
    monkeypatch.chdir(tmp_path)
    model = optimized(fused=True)
    in_precision(model, {**asked(False), "precision": "float16", "quantized": False})
    Path("half.onnx").write_bytes(model.SerializeToString())
    ids = np.arange(12, dtype=np.int64).reshape(2, 6)
    given = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
    halved = ort.InferenceSession("half.onnx", providers=["CPUExecutionProvider"])
    original = ort.InferenceSession(BERT, providers=["CPUExecutionProvider"])
    for one, other in zip(halved.run(None, given), original.run(None, given), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, atol=2e-2)


def test_what_the_profile_keeps_in_float32_is_measured_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    products = [node.name for node in onnx.load(BERT).graph.node if node.op_type == "MatMul"]
    found = []
    for kept in ([], products[:1], ["*"]):
        model = optimized(fused=False)
        request = {**asked(False), "precision": "float16", "quantized": False}
        in_precision(model, {**request, "keep_float32": kept})
        found.append(weight_types(model)[onnx.TensorProto.FLOAT16])
    assert found[0] > found[1] > found[2] == 0


@pytest.mark.parametrize(("precision", "quantized"), [("tf32", False), ("float16", True)])
def test_other_models_are_measured_in_their_types(
    precision: str, quantized: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = optimized(fused=False)
    before = model.SerializeToString(deterministic=True)
    in_precision(model, {**asked(False), "precision": precision, "quantized": quantized})
    assert model.SerializeToString(deterministic=True) == before


def test_a_model_without_float32_is_measured_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ids = onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["n"])
    twice = onnx.helper.make_tensor_value_info("twice", onnx.TensorProto.INT64, ["n"])
    node = onnx.helper.make_node("Add", ["ids", "ids"], ["twice"], name="add")
    graph = onnx.helper.make_graph([node], "integers", [ids], [twice])
    opsets = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    before = model.SerializeToString(deterministic=True)
    in_precision(model, {**asked(False), "precision": "float16", "quantized": False})
    assert model.SerializeToString(deterministic=True) == before
