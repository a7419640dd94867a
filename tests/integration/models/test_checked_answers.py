"""Reports about an artifact's answers to test data, with real artifacts and sessions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.tools.model_sandbox import compare_answers
from aotc.trust import key_files

Ask = Callable[..., dict[str, Any]]


def scaled(by: float, rows: int | str = "batch") -> onnx.ModelProto:
    """`y = by * x` of two numbers in a row."""
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, 2]) for n in ("x", "y")]
    factor = numpy_helper.from_array(np.array(by, np.float32), "factor")
    node = helper.make_node("Mul", ["x", "factor"], ["y"])
    graph = helper.make_graph([node], "scaled", info[:1], info[1:], [factor])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def write(folder: Path, x: Any, *outputs: Any) -> str:
    folder.mkdir()
    (folder / "input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    for index, each in enumerate(outputs):
        content = numpy_helper.from_array(each).SerializeToString()
        (folder / f"output_{index}.pb").write_bytes(content)
    return str(folder)


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """A function that compares the artifact of a doubling model with test data and a model."""
    folder = tmp_path_factory.mktemp("answers")
    private, public = key_files.generate(folder / "key.pem")
    onnx.save(scaled(2), folder / "double.onnx")
    onnx.save(scaled(3), folder / "triple.onnx")
    onnx.save(scaled(2, rows=7), folder / "seven.onnx")
    (folder / "broken.onnx").write_bytes(b"none")
    aotc.build(folder / "double.onnx", output=folder / "double.aotc", key=private)
    key = {"pem": public.read_text(), "origin": "test", "development": False}

    def compare(*data: str, model: str = "double") -> dict[str, Any]:
        found: dict[str, Any] = compare_answers(
            {
                "artifact": str(folder / "double.aotc"),
                "keys": [key],
                "model": str(folder / f"{model}.onnx"),
                "data": list(data),
                "custom_ops": [],
            }
        )
        return found

    return compare


X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)


def test_as_the_data_has_it(ask: Ask, tmp_path: Path) -> None:
    # Whatever the original answers.
    assert ask(write(tmp_path / "a", X, 2 * X), model="broken") == {"answers": "as-expected"}


def test_as_onnxruntime_has_it(ask: Ask, tmp_path: Path) -> None:
    found = ask(write(tmp_path / "wrong", X, 5 * X))
    assert (found["answers"], found["where"]) == ("as-onnxruntime", "wrong")
    assert found["what"] == "y: error 18 exceeds 0.03"
    found = ask(write(tmp_path / "without", X))
    assert (found["answers"], found["what"]) == ("as-onnxruntime", "")


def test_as_neither_has_it(ask: Ask, tmp_path: Path) -> None:
    found = ask(write(tmp_path / "a", X, 5 * X), model="triple")
    assert (found["answers"], found["what"]) == ("differ", "y: error 6 exceeds 0.018")


def test_where_onnxruntime_does_not_run_the_data(ask: Ask, tmp_path: Path) -> None:
    found = ask(write(tmp_path / "a", X, 5 * X), model="seven")
    assert (found["answers"], found["what"]) == ("differ", "y: error 18 exceeds 0.03")
    found = ask(write(tmp_path / "b", X), model="seven")
    assert found["answers"] == ""
    assert found["what"].startswith("ONNX Runtime does not run the data: ")


def test_what_the_artifact_refuses(ask: Ask, tmp_path: Path) -> None:
    found = ask(write(tmp_path / "a", X.astype(np.float64), 2 * X))
    assert (found["answers"], found["code"], found["where"]) == ("refused", "AOTC-R002", "a")


def test_data_with_another_number_of_outputs(ask: Ask, tmp_path: Path) -> None:
    found = ask(write(tmp_path / "a", X, 2 * X, X))
    assert (found["answers"], found["code"]) == ("refused", "AOTC-I024")
    assert found["what"] == "the number of outputs differs"


def test_of_several_sets_the_worst_counts(ask: Ask, tmp_path: Path) -> None:
    good, wrong = write(tmp_path / "good", X, 2 * X), write(tmp_path / "wrong", X, 5 * X)
    for order in ((good, wrong), (wrong, good)):
        assert ask(*order)["where"] == "wrong"
    assert ask(good, good) == {"answers": "as-expected"}
