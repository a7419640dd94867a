"""What is written for CUDA runs there, is captured, and answers as the original does on the CPU."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from on_gpu import CUDA, built, note, operators

import aotc
from aotc.graph.passes.fuse_for_cuda import fuse
from aotc.providers.cuda import CudaBackend

UNIT = Path(__file__).parents[1] / "unit" / "graph"
sys.path += [str(UNIT), str(UNIT.parents[1] / "support")]

from test_capturable import LOST, assignment, lost  # noqa: E402
from test_layer_norms import FORMS, image, pixels  # noqa: E402
from test_rows_of_pixels import convnext, encoder  # noqa: E402

pytestmark = pytest.mark.gpu
LAST = {"prefer_nhwc": "1", "fuse_conv_bias": "1"}


def on_gpu(
    model: onnx.ModelProto, given: dict[str, Any], folder: Path, **options: str
) -> tuple[list[Any], Counter[str], Counter[str]]:
    """Its answers, and how often each operator ran on CUDA and on the CPU."""
    backend = CudaBackend()
    backend.prepare()
    settings = ort.SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(folder / "profile")
    session = ort.InferenceSession(
        model.SerializeToString(), settings, providers=[(CUDA, {"use_tf32": "0", **options})]
    )
    assert CUDA in session.get_providers()
    answers = list(session.run(None, given))
    ran: dict[str, Counter[str]] = {}
    for event in json.loads(Path(session.end_profiling()).read_text()):
        facts = event.get("args", {})
        if event.get("cat") == "Node" and "provider" in facts:
            ran.setdefault(facts["provider"], Counter())[facts["op_name"]] += 1
    return answers, ran.get(CUDA, Counter()), ran.get("CPUExecutionProvider", Counter())


def on_cpu(model: onnx.ModelProto, given: dict[str, Any]) -> list[Any]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, given))


@pytest.mark.parametrize(("op", "dtype"), LOST)
def test_integers_and_booleans_are_exact(op: str, dtype: str, tmp_path: Path) -> None:
    model, given = lost(op, dtype)
    fused, _ = fuse(model, Path(), CUDA)
    found, _, elsewhere = on_gpu(fused, given, tmp_path)
    assert not elsewhere
    for one, other in zip(found, on_cpu(model, given), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("width", [1, 2, 6, 77, 1000, 4097])
def test_the_first_of_equal_ids_is_found(width: int, tmp_path: Path) -> None:
    """ONNX wants the first; cuDNN, which CUDA's ArgMax is made of, does not say which it takes."""
    model, _ = lost("ArgMax", "int32")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = width
    fused, _ = fuse(model, Path(), CUDA)
    rng = np.random.default_rng(width)
    for most in (1, 2, 49408):
        given = {"x": rng.integers(0, most, (64, width)).astype(np.int32)}
        given["x"][:, width // 2 :] = most
        (found,), _, _ = on_gpu(fused, given, tmp_path)
        np.testing.assert_array_equal(found, on_cpu(model, given)[0])


def test_a_masked_assignment_is_captured(tmp_path: Path) -> None:
    network = tmp_path / "assignment.onnx"
    onnx.save(assignment(["n", "m", 3]), network)
    artifact = built(network, tmp_path, {"n": 2, "m": 5})
    rng = np.random.default_rng(0)
    with aotc.load(artifact.path) as model:
        assert model._runners[0].captured
        for _ in range(3):
            given = {"x": rng.standard_normal((2, 5, 3)).astype(np.float32)}
            given["mask"] = rng.random((2, 5, 3)) > 0.5
            expected = np.where(given["mask"], np.float32(-2), given["x"])
            np.testing.assert_array_equal(model.run(given)["y"], expected)


@pytest.mark.parametrize("axis", [1, 3])
@pytest.mark.parametrize("name", FORMS)
def test_layer_norms_answer_as_before(name: str, axis: int, tmp_path: Path) -> None:
    model = image(*FORMS[name], axis=axis)
    fused, _ = fuse(model, Path(), CUDA)
    given = {"x": pixels(axis)}
    found, ran, _ = on_gpu(fused, given, tmp_path)
    assert ran["LayerNormalization"] == 1
    np.testing.assert_allclose(found[0], on_cpu(model, given)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network", [convnext, encoder])
def test_with_channels_last_no_transpose_runs_inside(network: Any, tmp_path: Path) -> None:
    """What the optimizer leaves at a load on CUDA, which only a GPU shows."""
    model = network()
    fused, _ = fuse(model, Path(), CUDA)
    given = {"x": np.random.default_rng(1).standard_normal((2, 8, 4, 6)).astype(np.float32)}
    expected = on_cpu(model, given)[0]
    for options in (LAST, {}):
        ran = {}
        for name, one in (("as exported", model), ("as written", fused)):
            found, counts, _ = on_gpu(one, given, tmp_path, **options)
            ran[name] = counts["Transpose"]
            np.testing.assert_allclose(found[0], expected, rtol=1e-3, atol=1e-4)
        note(f"Transposes of {network.__name__}, {options or 'channels first'}", ran)
        assert ran["as written"] <= ran["as exported"]
        if options:
            # Of the image that is given, and of the one that is answered.
            assert ran["as written"] <= 2


def test_convolutions_with_activations_are_those_that_the_decision_names(tmp_path: Path) -> None:
    """ADR 95: ONNX Runtime fuses none for CUDA; the figures say if a release changes that."""
    model = encoder()
    make = onnx.helper.make_node
    del model.graph.node[:]
    model.graph.node.extend(
        [
            make("Relu", ["x"], ["r"]),
            make("Conv", ["r", "full"], ["c"]),
            make("Add", ["c", "x"], ["s"]),
            make("Relu", ["s"], ["y"]),
        ]
    )
    given = {"x": np.random.default_rng(1).standard_normal((2, 8, 4, 6)).astype(np.float32)}
    for options in (LAST, {}):
        found, counts, _ = on_gpu(model, given, tmp_path, **options)
        note(f"operators of a residual block, {options or 'channels first'}", dict(counts))
        np.testing.assert_allclose(found[0], on_cpu(model, given)[0], rtol=1e-3, atol=1e-4)
        assert not counts["FusedConv"]


def test_an_encoder_of_texts_is_captured(tmp_path: Path) -> None:
    """The last hidden state at the largest id, as CLIP takes it; ids are int64 at the interface."""
    make, width = onnx.helper.make_node, 16
    rng = np.random.default_rng(0)
    table = rng.standard_normal((100, width)).astype(np.float32)
    graph = onnx.helper.make_graph(
        [
            make("Gather", ["table", "ids"], ["e"], name="embed"),
            make("LayerNormalization", ["e", "scale"], ["h"], name="norm"),
            make("Cast", ["ids"], ["i"], name="narrow", to=onnx.TensorProto.INT32),
            make("ArgMax", ["i"], ["at"], name="last", axis=-1, keepdims=1),
            make("Unsqueeze", ["at", "end"], ["at3"], name="to3"),
            make("Expand", ["at3", "wide"], ["spread"], name="spread"),
            make("GatherElements", ["h", "spread"], ["y"], name="take", axis=1),
        ],
        "texts",
        [onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["batch", "length"])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 1, width])],
        [
            onnx.numpy_helper.from_array(table, "table"),
            onnx.numpy_helper.from_array(np.ones(width, np.float32), "scale"),
            onnx.numpy_helper.from_array(np.array([-1]), "end"),
            onnx.numpy_helper.from_array(np.array([1, 1, width]), "wide"),
        ],
    )
    opsets = [onnx.helper.make_opsetid("", 18)]
    network = tmp_path / "texts.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), network)
    artifact = built(network, tmp_path, {"batch": 4, "length": 12}, precision="float16")
    ids = rng.integers(0, 99, (4, 12))
    ids[:, 7:] = 99
    with aotc.load(artifact.path) as model:
        note("an encoder of texts", dict(operators(model)))
        assert model._runners[0].captured
        (expected,) = on_cpu(onnx.load(network), {"ids": ids})
        np.testing.assert_allclose(model.run({"ids": ids})["y"], expected, rtol=1e-2, atol=1e-2)
