"""`aotc build --precision` as it is typed: aliases, refusals that name what lacks, summaries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from command import Command
from made_models import linear, save
from model_parts import model_of
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node


def weights(*shape: int) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.random.default_rng(len(shape)).standard_normal(shape)
    return (found * 0.2).astype(np.float32)


def filtered(operator: str, opset: int = 18) -> onnx.ModelProto:
    """One convolution, or its transposed form, and a Relu."""
    return model_of(
        [node(operator, ["x", "w"], ["a"], "filter"), node("Relu", ["a"], ["y"], "relu")],
        {"x": ["n", 8, 16, 16]},
        {"y": ["n", 8, None, None]},
        {"w": weights(8, 8, 3, 3)},
        opset=opset,
    )


@pytest.fixture
def aotc(tmp_path: Path) -> Command:
    """The command beside `conv.onnx`, `data.npz` and `zeros.npz`."""
    save(filtered("Conv"), tmp_path / "conv.onnx")
    samples = np.random.default_rng(1).standard_normal((8, 8, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=samples)
    np.savez(tmp_path / "zeros.npz", x=np.zeros_like(samples))
    return Command(tmp_path)


def profile(aotc: Command, **fields: Any) -> str:
    stated = {"schema": "aotc.profile/1", "name": "p", "dims": {"n": "1..4"}, **fields}
    (aotc.folder / "p.yaml").write_text(yaml.safe_dump(stated))
    return "p.yaml"


def precisions(aotc: Command) -> tuple[str, str]:
    """Of the profile in the manifest, and of its first variant."""
    text = (aotc.folder / "out.aotc" / "payload" / "aotc.json").read_text()
    manifest = json.loads(text)
    return manifest["profile"]["precision"], manifest["variants"][0].get("precision", "keep")


@pytest.mark.parametrize(("word", "name"), [("fp16", "float16"), ("bf16", "bfloat16")])
def test_aliases(word: str, name: str, aotc: Command) -> None:
    save(linear(), aotc.folder / "linear.onnx")
    words = ("build", "linear.onnx", "--dim", "batch=1..2", "-o", "out.aotc", "--force")
    first = aotc(*words, "--precision", word)
    assert (first.status, precisions(aotc)) == (0, (name, name))
    (aotc.folder / "p.yaml").write_text(f"schema: aotc.profile/1\nname: edge\nprecision: {word}\n")
    assert aotc(*words, "--profile", "p.yaml").status == 0
    assert precisions(aotc) == (name, name), "the manifest has one name for it"


def test_a_word_that_is_no_alias(aotc: Command) -> None:
    error = aotc("build", "conv.onnx", "--precision", "fp32").refused("AOTC-I027", 2)
    assert error["expected"] == "keep, tf32, float16, bfloat16, int8, int4, auto"


def test_bfloat16_before_its_opset(aotc: Command) -> None:
    save(filtered("Conv", opset=12), aotc.folder / "older.onnx")
    error = aotc("build", "older.onnx", "--precision", "bf16").refused("AOTC-N008", 3)
    assert error["found"] == "operator set 12; Cast to bfloat16 exists from 13 on"


BY_DATA = "Give data with --calibration: convolutions are quantized by ranges observed on it."


@pytest.mark.parametrize(
    ("precision", "form", "code", "fix"),
    [
        ("int8", "auto", "AOTC-N015", BY_DATA),
        ("int8", "dynamic", "AOTC-N015", f"Choose 'quantization: {{form: static}}'. {BY_DATA}"),
        ("int4", "auto", "AOTC-N015", f"Choose 'precision: int8'. {BY_DATA}"),
        (
            "int8",
            "static",
            "AOTC-I072",
            "Give data with --calibration or calibration.data, or choose 'quantization: {form: "
            "dynamic}', which needs none and leaves convolutions in float32.",
        ),
    ],
)
def test_convolutions_without_data(
    precision: str, form: str, code: str, fix: str, aotc: Command
) -> None:
    stated = profile(aotc, precision=precision, quantization={"form": form})
    error = aotc("build", "conv.onnx", "--profile", stated).refused(code, 3)
    assert error["fix"] == fix


@pytest.mark.parametrize("data", ((), ("--calibration", "data.npz")))
def test_a_model_with_no_product_at_all(data: tuple[str, ...], aotc: Command) -> None:
    save(filtered("ConvTranspose"), aotc.folder / "transposed.onnx")
    words = ("build", "transposed.onnx", "--precision", "int8", *data)
    error = aotc(*words).refused("AOTC-N073", 3)
    operators = "Conv, Gather, Gemm, LSTM, MatMul" if data else "Gather, Gemm, LSTM, MatMul"
    assert error["expected"] == f"one of {operators} with constant weights"
    assert error["found"] == "none of them with such weights, among ConvTranspose, Relu"
    assert error["fix"] == "Choose 'precision: keep': the model has none of these products."


def test_nodes_that_the_profile_keeps(aotc: Command) -> None:
    stated = profile(aotc, precision="int8", keep_float32=["filter"])
    words = ("build", "conv.onnx", "--profile", stated, "--calibration", "data.npz")
    error = aotc(*words).refused("AOTC-N015", 3)
    assert error["fix"] == "Leave names out of keep_float32, or choose 'precision: keep'."


@pytest.mark.parametrize("precision", ("int8", "auto"))
def test_calibration_data_of_zeros(precision: str, aotc: Command) -> None:
    words = ("build", "conv.onnx", "--precision", precision, "--calibration", "zeros.npz")
    error = aotc(*words).refused("AOTC-I115", 3)
    assert (error["where"], error["found"]) == ("zeros.npz", "x: 0 in 8 samples")


def test_a_model_that_is_quantized_already(aotc: Command) -> None:
    integers = np.random.default_rng(2).integers(-60, 60, (16, 16)).astype(np.int8)
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantize"),
        node("MatMulInteger", ["q", "w", "z"], ["i"], "product"),
        node("Cast", ["i"], ["c"], "cast", to=onnx.TensorProto.FLOAT),
        node("Mul", ["c", "s"], ["y"], "scaled"),
    ]
    model = model_of(nodes, {"x": ["n", 16]}, {"y": ["n", 16]}, {"w": integers})
    save(model, aotc.folder / "quantized.onnx")
    words = ("build", "quantized.onnx", "--dim", "n=1..2", "-o", "out.aotc", "--force")
    for precision, told in (("int8", "AOTC-N014"), ("fp16", "AOTC-N011"), ("auto", "AOTC-O019")):
        built = aotc(*words, "--precision", precision)
        found = {each["code"]: each["what"] for each in built.document["findings"]}
        assert (built.status, precisions(aotc)[1]) == (0, "keep")
        assert "the model is quantized, and is left unchanged" in found[told]


def test_a_model_without_any_product(aotc: Command) -> None:
    """With and without constants, which would have been told in two ways."""
    for name, nodes, constants in (
        ("none", [node("Relu", ["x"], ["r"]), node("Softmax", ["r"], ["y"])], {}),
        ("sum", [node("Add", ["x", "c"], ["y"])], {"c": np.ones(16, np.float32)}),
    ):
        graph = helper.make_graph(
            nodes,
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 16])],
            [numpy_helper.from_array(value, key) for key, value in constants.items()],
        )
        opsets = [helper.make_opsetid("", 17)]
        save(helper.make_model(graph, opset_imports=opsets, ir_version=8), aotc.folder / "p.onnx")
        error = aotc("build", "p.onnx", "--precision", "int8").refused("AOTC-N073", 3)
        assert error["fix"] == "Choose 'precision: keep': the model has none of these products."


def test_a_summary_tells_that_little_was_quantized(aotc: Command) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"], "first", pads=[1] * 4),
        node("Conv", ["a", "v"], ["b"], "second", pads=[1] * 4),
        node("Flatten", ["b"], ["f"], "flat"),
        node("MatMul", ["f", "p"], ["y"], "product"),
    ]
    constants = {
        "w": weights(32, 8, 3, 3),
        "v": weights(8, 32, 3, 3),
        "p": weights(2048, 64) * np.float32(0.1),
    }
    model = model_of(nodes, {"x": ["n", 8, 16, 16]}, {"y": ["n", 64]}, constants)
    save(model, aotc.folder / "little.onnx")
    words = ("build", "little.onnx", "--dim", "n=1..4", "--precision", "int8", "-o", "out.aotc")
    text = " ".join(aotc.plain(*words).stdout.split())
    assert "quantized int8 (dynamic) in 1 of 3 products, with 97% of the bytes" in text
    assert "AOTC-N070 little was quantized" in text
    again = aotc.plain(*words, "--force", "--calibration", "data.npz")
    assert "AOTC-N070" not in again.stdout
