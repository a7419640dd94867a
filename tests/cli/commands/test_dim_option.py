"""`--dim` in the shell: names with odd characters, ranges in steps, and one size for `bench`."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from command import Command
from onnx import TensorProto, helper

NAME = "serving_default_x:0"


@pytest.fixture
def aotc(tmp_path: Path) -> Command:
    """The command in a folder with `model.onnx`, both of whose free dims are called None."""
    shape = ["None", "None"]
    graph = helper.make_graph(
        [helper.make_node("Neg", [NAME], ["y"], name="minus")],
        "model",
        [helper.make_tensor_value_info(NAME, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    opset = helper.make_opsetid("", 18)
    onnx.save(
        helper.make_model(graph, opset_imports=[opset], ir_version=9), tmp_path / "model.onnx"
    )
    return Command(tmp_path)


def test_a_range_in_steps_of_dims_that_inspect_lists(aotc: Command) -> None:
    listed = aotc("inspect", "model.onnx").document["inputs"][0]["shape"]
    assert listed == [f"{NAME}.0", f"{NAME}.1"]
    rows, columns = listed
    words = ["--dim", f"{rows}=1..4", "--dim", f"{columns}=32..96:32", "-o", "made.aotc"]
    assert aotc("build", "model.onnx", *words).status == 0
    dims = aotc("inspect", "made.aotc").document["domain"]["dims"]
    assert (dims[rows]["min"], dims[rows]["max"]) == (1, 4)
    found = dims[columns]
    assert (found["min"], found["max"], found["multiple_of"]) == (32, 96, 32)
    words = ["bench", "made.aotc", "--runs", "1", "--dim"]
    assert aotc(*words, f"{columns}=64").status == 0
    error = aotc(*words, f"{columns}=32..96:32").refused("AOTC-I027", 2)
    assert (error["what"], error["found"]) == ("--dim takes one size here", "32..96:32")


def test_a_name_of_two_dims_is_refused_with_the_names_of_both(aotc: Command) -> None:
    error = aotc("build", "model.onnx", "--dim", "None=4").refused("AOTC-S002", 3)
    assert error["expected"] == f"{NAME}.0, {NAME}.1"


def test_a_range_may_be_stated_to_hold_nothing(aotc: Command) -> None:
    """Size 0 is one like another where the model runs at it; alone it leaves nothing to answer."""
    rows, columns = f"{NAME}.0", f"{NAME}.1"
    words = ["--dim", f"{columns}=4", "--force", "-o", "made.aotc"]
    assert aotc("build", "model.onnx", "--dim", f"{rows}=0..3", *words).status == 0
    dims = aotc("inspect", "made.aotc").document["domain"]["dims"]
    assert (dims[rows]["min"], dims[rows]["max"]) == (0, 3)
    assert aotc("bench", "made.aotc", "--runs", "1", "--dim", f"{rows}=0").status == 0
    found = aotc("build", "model.onnx", "--dim", f"{rows}=0", *words).refused("AOTC-S035", 3)
    assert found["where"] == f"dim {rows}"
