"""A task on a labelled set: the metric of the original and of variants, and what has none."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from model_parts import model_of
from onnx import TensorProto, helper, numpy_helper
from refusals import refusal
from repository import ROOT
from workbench import Workbench

from aotc.base.errors import AotcError
from aotc.spec.run_report import Journal
from aotc.tools.inspect import inspect

DIGITS = ROOT / "examples" / "digits"
PROFILE = """\
schema: aotc.profile/1
name: judged
gates:
  task:
    data: {data}
    metric: {metric}
    max_drop: {drop}
"""


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


def judged(
    bench: Workbench, data: str = "data.npz", metric: str = "accuracy", drop: float = 0, **more: Any
) -> Path:
    path = bench.folder / "judged.yaml"
    lines = "".join(f"    {name}: {value}\n" for name, value in more.items())
    path.write_text(PROFILE.format(data=data, metric=metric, drop=drop) + lines)
    return path


def refused(
    bench: Workbench, model: Any, profile: Path, journal: Journal | None = None
) -> AotcError:
    return refusal(bench.build, model, "no", profile=profile, cache=False, journal=journal)


def close_classes() -> onnx.ModelProto:
    """A classifier of two classes whose weights differ by less than a step of 8 bits."""
    random = np.random.default_rng(5)
    first = random.normal(size=(64, 1))
    weights = np.concatenate([first, first + random.normal(scale=1e-3, size=first.shape)], axis=1)
    return model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        outputs=[helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        initializers=[numpy_helper.from_array(weights.astype(np.float32), "w")],
    )


def close_set(count: int = 200) -> dict[str, Any]:
    (weights,) = close_classes().graph.initializer
    x = np.random.default_rng(6).normal(size=(count, 64)).astype(np.float32)
    return {"x": x, "label": (x @ numpy_helper.to_array(weights)).argmax(axis=1)}


def test_the_digits_are_judged_by_their_labels(bench: Workbench) -> None:
    profile = judged(bench, str(DIGITS / "heldout.npz"), drop=0.005)
    journal = Journal()
    built = bench.build(DIGITS / "digits.onnx", "digits", profile=profile, journal=journal)
    (evidence,) = built.report.variants
    assert evidence.task is not None
    assert (evidence.task.metric, evidence.task.output) == ("accuracy", "logits")
    assert (evidence.task.samples, evidence.task.passed) == (450, True)
    # As the example's own demo counts it.
    assert evidence.task.original >= 0.98
    assert abs(evidence.task.drop) <= 0.005
    (gate,) = (gate for gate in journal.gates if gate.name == "gates.task.max_drop")
    assert (gate.status, gate.limit) == ("passed", "accuracy drops by <= 0.005")
    assert gate.place is not None
    assert gate.place.line == 7
    verdict = built.manifest.variants[0].parity.task
    assert verdict is not None
    assert (verdict.metric, verdict.samples) == ("accuracy", 450)
    assert verdict.data_sha256 == hashlib.sha256((DIGITS / "heldout.npz").read_bytes()).hexdigest()
    shown = inspect(built.path).artifact
    assert shown is not None
    assert shown.variants[0].task == evidence.task


def test_int8_that_keeps_to_its_tolerance_may_still_fail_the_task(bench: Workbench) -> None:
    np.savez(bench.folder / "data.npz", **close_set())
    profile = judged(bench, drop=0.05)
    text = profile.read_text()
    profile.write_text(text + "precision: int8\nquantization: {form: dynamic}\n")
    journal = Journal()
    error = refused(bench, close_classes(), profile, journal)
    assert (error.code, error.exit_status) == ("AOTC-N024", 1)
    assert error.what == "accuracy of 200 samples dropped"
    assert error.expected == "accuracy drops by <= 0.05"
    assert error.found.endswith("below the original's 1")
    assert (error.place.file, error.place.line) == (str(profile), 7)
    # A companion for CPUs with VNNI is merely left out.
    states = {(gate.name, gate.status) for gate in journal.gates}
    assert {("parity.int8", "passed"), ("gates.task.max_drop", "failed")} <= states
    assert ("parity.int8", "failed") not in states
    figures = {figure.name: figure.value for figure in journal.measurements}
    assert figures["accuracy of the original"] == 1
    assert figures["accuracy"] < 0.95
    assert not (bench.folder / "no.aotc").exists()
    profile.write_text(text)
    assert bench.build(close_classes(), "exact", profile=profile).report.variants[0].task


@pytest.mark.parametrize(("size", "served"), [("4", 4), ("2..8", 2)])
def test_batches_have_a_size_that_the_model_takes(bench: Workbench, size: str, served: int) -> None:
    np.savez(bench.folder / "data.npz", **close_set(count=7))
    built = bench.build(
        close_classes(), "sized", profile=judged(bench), dims={"batch": size}, cache=False
    )
    task = built.report.variants[0].task
    assert task is not None
    assert (task.samples, task.original, task.variant) == (7, 1, 1)
    assert built.manifest.domain.dims.get("batch") is None or served <= 8


def test_each_bucket_is_judged_in_its_own_size(bench: Workbench) -> None:
    np.savez(bench.folder / "data.npz", **close_set(count=7))
    profile = judged(bench)
    profile.write_text(
        profile.read_text() + "dims:\n  batch: {min: 1, max: 8, buckets: [2, 8], outside: [pad]}\n"
    )
    built = bench.build(close_classes(), "buckets", profile=profile, cache=False)
    tasks = [variant.task for variant in built.report.variants]
    assert [task.samples for task in tasks if task] == [7, 7]
    assert all(task and task.variant == 1 for task in tasks)


def test_a_folder_of_files_is_one_set_and_samples_may_lack_the_models_first_axis(
    bench: Workbench,
) -> None:
    model = model_of(
        [helper.make_node("ReduceMean", ["x"], ["m"], name="mean", keepdims=1),
         helper.make_node("Concat", ["m", "x"], ["y"], name="join", axis=0)],
        inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        outputs=[helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )  # fmt: skip
    x = np.array([[1, 2, 9], [9, 1, 2], [1, 9, 2], [3, 1, 1]], np.float32)
    folder = bench.folder / "set"
    folder.mkdir()
    np.savez(folder / "a.npz", x=x[:3], label=np.array([3, 1, 2]))
    np.savez(folder / "b.npz", x=x[3:], label=np.array([2]))
    (folder / "notes.txt").write_text("not read")
    (folder / "deeper").mkdir()
    np.savez(folder / "deeper" / "c.npz", x=x, label=np.array([0, 0, 0, 0]))
    built = bench.build(model, "rows", profile=judged(bench, "set"))
    task = built.report.variants[0].task
    verdict = built.manifest.variants[0].parity.task
    assert verdict is not None
    whole = hashlib.sha256()
    for name in ("a.npz", "b.npz"):
        whole.update(name.encode() + b"\0" + hashlib.sha256((folder / name).read_bytes()).digest())
    # What lies beside or below is not read, and no part of it.
    assert verdict.data_sha256 == whole.hexdigest()
    assert task is not None
    assert (task.samples, task.original, task.variant) == (4, 0.75, 0.75)


def segmenter() -> onnx.ModelProto:
    """Three classes of pixels: the image, its negation, and a constant."""
    nodes = [
        helper.make_node("Neg", ["x"], ["n"], name="negate"),
        helper.make_node("Mul", ["x", "zero"], ["z"], name="clear"),
        helper.make_node("Concat", ["x", "n", "z"], ["y"], name="join", axis=1),
    ]
    return model_of(
        nodes,
        inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 4, 4])],
        outputs=[helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3, 4, 4])],
        initializers=[numpy_helper.from_array(np.float32(0), "zero")],
    )


def test_mean_iou_is_over_classes_that_occur_and_labels_that_count(bench: Workbench) -> None:
    x = np.ones((2, 1, 4, 4), np.float32)
    x[:, :, 2:] = -1
    labels = np.zeros((2, 4, 4), np.int64)
    labels[:, 2:] = 1
    labels[:, 0, 0] = 1
    labels[1, 3] = 255
    np.savez(bench.folder / "data.npz", x=x, label=labels)
    profile = judged(bench, metric="mean_iou", ignore_label=255)
    task = bench.build(segmenter(), "pixels", profile=profile).report.variants[0].task
    assert task is not None
    # Class 0: 14 of 16; class 1: 12 of 14; class 2 occurs nowhere.
    assert task.original == pytest.approx((14 / 16 + 12 / 14) / 2)


METRICS = """\
import sys

import numpy as np

def right(output, labels):
    assert output.shape == (200, 2) and labels.shape == (200,)
    return (output.argmax(1) == labels).mean()

def raises(output, labels):
    missing = {}
    return missing["nothing"]

def leaves(output, labels):
    sys.exit(4)

def text(output, labels):
    return "good"

def nan(output, labels):
    return np.nan

number = 3
"""


def test_a_function_of_the_user_judges_the_whole_set(bench: Workbench) -> None:
    np.savez(bench.folder / "data.npz", **close_set())
    (bench.folder / "own_metrics.py").write_text(METRICS)
    profile = judged(bench, metric="own_metrics:right")
    built = bench.build(close_classes(), "own", profile=profile)
    task = built.report.variants[0].task
    assert task is not None
    assert (task.metric, task.original, task.variant) == ("own_metrics:right", 1, 1)
    # Nobody knows what a function depends on: nothing of it is kept.
    again = bench.build(close_classes(), "again", profile=profile)
    assert (built.report.cached, again.report.cached) == (False, False)


@pytest.mark.parametrize(
    ("metric", "code", "found"),
    [
        ("own_metrics:raises", "AOTC-N027", "own_metrics.py, line 11: KeyError: 'nothing'"),
        ("own_metrics:leaves", "AOTC-N027", "own_metrics.py, line 14: SystemExit: 4"),
        ("own_metrics:text", "AOTC-N025", "own_metrics:text returned str"),
        ("own_metrics:nan", "AOTC-N025", "own_metrics:nan returned nan"),
        ("own_metrics:number", "AOTC-N027", "number is not a function in own_metrics.py"),
        ("own_metrics:none", "AOTC-N027", "none is missing in own_metrics.py"),
        ("no_such_module:f", "AOTC-N027", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("torn:f", "AOTC-N027", "torn.py, line 2: SyntaxError: '(' was never closed"),
    ],
)
def test_a_function_that_fails_is_told_with_its_own_line(
    bench: Workbench, metric: str, code: str, found: str
) -> None:
    np.savez(bench.folder / "data.npz", **close_set())
    (bench.folder / "own_metrics.py").write_text(METRICS)
    (bench.folder / "torn.py").write_text("x = 1\ny = (\n")
    error = refused(bench, close_classes(), judged(bench, metric=metric))
    assert (error.code, error.found) == (code, found)
    assert error.place.line == 6


GOOD = close_set(count=6)


@pytest.mark.parametrize(
    ("arrays", "code", "line", "what", "found"),
    [
        ({"x": GOOD["x"]}, "AOTC-I080", 4, "there are no labels", "x"),
        (
            {**GOOD, "label": GOOD["label"][:5]},
            "AOTC-I080",
            4,
            "there are not as many labels as samples",
            "5",
        ),
        (
            {**GOOD, "label": GOOD["label"] + 1},
            "AOTC-I080",
            4,
            "labels are not classes of the output",
            "2, and 1 such in a batch",
        ),
        (
            {**GOOD, "label": GOOD["label"].astype(np.float32)},
            "AOTC-I080",
            4,
            "labels are not classes of the output",
            "labels of float32",
        ),
        (
            {**GOOD, "label": np.zeros((6, 3), np.int64)},
            "AOTC-I080",
            4,
            "the labels' shape does not fit the output",
            "[1, 3]",
        ),
        (
            {"image": GOOD["x"], "label": GOOD["label"]},
            "AOTC-I079",
            5,
            "the labelled set lacks inputs of the model",
            "image, label",
        ),
        (
            {**GOOD, "x": GOOD["x"].astype(np.float64)},
            "AOTC-I079",
            5,
            "the labelled set has another type than the model's input",
            "float64",
        ),
        (
            {**GOOD, "x": GOOD["x"][:, :60]},
            "AOTC-I079",
            5,
            "the labelled set has another shape than the model's input",
            "[1, 60]",
        ),
        (
            {**GOOD, "label": np.array([None] * 6)},
            "AOTC-I079",
            5,
            "the labelled set cannot be read",
            "an array of Python objects, which is a pickle",
        ),
        (
            {"x": GOOD["x"][:0], "label": GOOD["label"][:0]},
            "AOTC-I079",
            5,
            "the labelled set holds no sample",
            "",
        ),
    ],
)
def test_a_set_that_does_not_fit_is_an_error_of_the_input(
    bench: Workbench, arrays: Any, code: str, line: int, what: str, found: str
) -> None:
    np.savez(bench.folder / "data.npz", **arrays)
    error = refused(bench, close_classes(), judged(bench))
    assert (error.code, error.exit_status, error.what) == (code, 3, what)
    assert error.found.startswith(found) if code == "AOTC-I080" else error.found == found
    assert error.place.line in (line, 5)


def test_a_set_that_is_not_there_or_damaged(bench: Workbench) -> None:
    profile = judged(bench)
    error = refused(bench, close_classes(), profile)
    assert (error.code, error.what) == ("AOTC-I079", "the labelled set does not exist")
    (bench.folder / "data.npz").write_bytes(b"PK\3\4 no archive")
    error = refused(bench, close_classes(), profile)
    assert (error.code, error.what) == ("AOTC-I079", "the labelled set cannot be read")


def test_a_metric_that_does_not_fit_the_output(bench: Workbench) -> None:
    np.savez(bench.folder / "data.npz", **close_set(count=6))
    error = refused(bench, close_classes(), judged(bench, metric="top5"))
    assert (error.code, error.exit_status) == ("AOTC-I081", 3)
    assert error.expected == "more than 5 classes along the last axis"
    error = refused(bench, close_classes(), judged(bench, output="logits"))
    assert (error.code, error.what) == ("AOTC-I078", "the model has no output 'logits'")


def test_a_set_at_sizes_that_were_not_asked_for(bench: Workbench) -> None:
    x = np.zeros((3, 1, 4, 4), np.float32)
    np.savez(bench.folder / "data.npz", x=x, label=np.zeros((3, 4, 4), np.int64))
    model = segmenter()
    for dim in (2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[dim].dim_param = f"d{dim}"
        model.graph.output[0].type.tensor_type.shape.dim[dim].dim_param = f"d{dim}"
    profile = judged(bench, metric="mean_iou")
    with pytest.raises(AotcError) as refused:
        bench.build(model, "no", profile=profile, dims={"d2": "8..16"}, cache=False)
    assert refused.value.code == "AOTC-I079"
    assert refused.value.found == "n=1, d2=4, d3=4"


def logarithm() -> onnx.ModelProto:
    """Two classes whose values are NaN for inputs below zero."""
    return model_of(
        [helper.make_node("Log", ["x"], ["y"], name="log")],
        inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        outputs=[helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
    )


def test_answers_with_nan_count_as_wrong_and_nothing_else_is_no_pass(bench: Workbench) -> None:
    x = np.array([[1, 2], [-1, 2], [3, 1], [5, 1]], np.float32)
    np.savez(bench.folder / "data.npz", x=x, label=np.array([1, 1, 0, 0]))
    task = bench.build(logarithm(), "some", profile=judged(bench)).report.variants[0].task
    assert task is not None
    assert (task.original, task.variant, task.nan_answers) == (0.75, 0.75, 1)
    np.savez(bench.folder / "data.npz", x=-np.abs(x), label=np.array([1, 1, 0, 0]))
    error = refused(bench, logarithm(), judged(bench))
    assert (error.code, error.exit_status) == ("AOTC-N025", 1)
    assert error.found == "every answer has NaN"
