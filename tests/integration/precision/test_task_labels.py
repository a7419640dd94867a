"""Labels of a task that no answer can equal, and a metric below which nothing can drop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from model_parts import model_of
from onnx import TensorProto, helper
from refusals import refusal
from workbench import Workbench

from aotc.base.errors import AotcError

WORDS = [b"cat", b"dog", "Ünder".encode()]
X = np.eye(3, dtype=np.float32)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


def judged(bench: Workbench, **more: Any) -> Path:
    path = bench.folder / "judged.yaml"
    lines = "".join(f"    {name}: {value}\n" for name, value in more.items())
    path.write_text(
        "schema: aotc.profile/1\nname: judged\ngates:\n  task:\n    data: data.npz\n" + lines
    )
    return path


def refused(bench: Workbench, model: onnx.ModelProto, **more: Any) -> AotcError:
    return refusal(bench.build, model, "no", profile=judged(bench, **more), cache=False)


def answering(kind: int) -> onnx.ModelProto:
    """Answers themselves: the place of the largest of three values, as an integer or a word."""
    nodes = [helper.make_node("ArgMax", ["x"], ["place"], name="place", axis=1, keepdims=0)]
    words = helper.make_tensor("words", TensorProto.STRING, [3], WORDS)
    if kind == TensorProto.STRING:
        nodes.append(helper.make_node("Gather", ["words", "place"], ["y"], name="word"))
    else:
        nodes.append(helper.make_node("Identity", ["place"], ["y"], name="same"))
    return model_of(
        nodes,
        inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        outputs=[helper.make_tensor_value_info("y", kind, ["n"])],
        initializers=[words] if kind == TensorProto.STRING else [],
    )


@pytest.mark.parametrize(
    ("kind", "labels", "expected", "found"),
    [
        (TensorProto.INT64, np.array(["0", "1", "2"]), "integers, as the output has", "text"),
        (TensorProto.INT64, np.array([0, 0.9, 2]), "integers, as the output has", "float64"),
        (TensorProto.STRING, np.array([0, 1, 2]), "text, as the output is", "int64"),
        (TensorProto.STRING, np.array([b"cat", b"\xff", b"x"]), "text in UTF-8", ""),
    ],
)
def test_labels_that_no_answer_can_equal(
    bench: Workbench, kind: int, labels: Any, expected: str, found: str
) -> None:
    np.savez(bench.folder / "data.npz", x=X, label=labels)
    error = refused(bench, answering(kind))
    assert (error.code, error.exit_status) == ("AOTC-I080", 3)
    assert (error.what, error.expected) == ("labels are not classes of the output", expected)
    assert error.found == f"labels of {found}" if found else "can't decode" in error.found


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        (TensorProto.INT64, np.array([0, 1, 2], np.uint8)),
        (TensorProto.STRING, np.array([word.decode() for word in WORDS])),
        (TensorProto.STRING, np.array(WORDS)),
    ],
)
def test_labels_of_the_outputs_class(bench: Workbench, kind: int, labels: Any) -> None:
    np.savez(bench.folder / "data.npz", x=X, label=labels)
    built = bench.build(answering(kind), "fits", profile=judged(bench), cache=False)
    task = built.report.variants[0].task
    assert task is not None
    assert (task.samples, task.original, task.variant) == (3, 1, 1)


@pytest.mark.parametrize("metric", ["accuracy", "mean_iou"])
def test_a_gate_that_nothing_can_fail_is_no_gate(bench: Workbench, metric: str) -> None:
    np.savez(bench.folder / "data.npz", x=X, label=np.array([1, 2, 0]))
    error = refused(bench, answering(TensorProto.INT64), metric=metric)
    assert (error.code, error.exit_status) == ("AOTC-N025", 1)
    assert error.what == f"the original's own {metric} is 0, below which no variant can drop"
    assert error.found == "0 on 3 samples"
    assert error.place is not None


def test_zero_of_a_function_may_be_its_best(bench: Workbench) -> None:
    np.savez(bench.folder / "data.npz", x=X, label=np.array([0, 1, 2]))
    text = "def negated_loss(output, labels):\n    return -(output != labels).sum()\n"
    (bench.folder / "own_loss.py").write_text(text)
    profile = judged(bench, metric="own_loss:negated_loss")
    built = bench.build(answering(TensorProto.INT64), "loss", profile=profile, cache=False)
    task = built.report.variants[0].task
    assert task is not None
    assert task.original == 0


def test_labels_that_are_an_input(bench: Workbench) -> None:
    np.savez(bench.folder / "data.npz", x=X, label=np.array([0, 1, 2]))
    error = refused(bench, answering(TensorProto.INT64), labels="x")
    assert (error.code, error.exit_status) == ("AOTC-I080", 3)
    assert error.what == "the array of the labels is an input of the model"
    assert error.found == "x"
    assert error.place is not None
    assert error.place.line == 6
