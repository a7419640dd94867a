"""Outputs of which nothing is seen: searched for, told, and refused in a lower precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from made_profiles import profile_with
from model_parts import constant, info, model_of, node
from onnx import TensorProto, numpy_helper
from refusals import refusal, refusal_code
from repository import ROOT
from workbench import Workbench

WIDTH = 16
DIGITS = ROOT / "examples" / "digits"
DRAWN = np.random.default_rng(20261126)
WEIGHT = (DRAWN.normal(size=(WIDTH, 32)) * 0.3).astype(np.float32)


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


def after_product(
    *nodes: onnx.NodeProto,
    batch: int | str = 4,
    output: onnx.ValueInfoProto | None = None,
    constants: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    """`l = x @ W`, and what `nodes` make of it."""
    made = output or info("y", None)
    inits = {"W": WEIGHT, **{k: np.asarray(v, np.float32) for k, v in (constants or {}).items()}}
    return model_of(
        [node("MatMul", "x W", "l", "product"), *nodes],
        [info("x", [batch, WIDTH])],
        [made],
        inits,
    )


def float32(bench: Workbench, model: onnx.ModelProto, **options: Any) -> dict[str, str]:
    """The texts of findings of a build that keeps the precision, by code."""
    built = bench.build(model, "keep", cache=False, force=True, **options)
    found = {item.code: item.what for item in built.manifest.findings}
    return {code: what for code, what in found.items() if code.startswith("AOTC-N04")}


NOTHING = {
    "constant": (
        after_product(node("Abs", "l", "a"), node("Neg", "a", "b"), node("Relu", "b", "y")),
        "had the one value 0 in",
    ),
    "not finite": (
        after_product(node("Abs", "l", "a"), node("Neg", "a", "b"), node("Log", "b", "y")),
        "was NaN or infinite throughout in",
    ),
    "empty": (
        after_product(
            *(node("Abs", "l", "a"), node("Less", "a none", "b"), node("NonZero", "b", "y")),
            output=info("y", [2, "k"], TensorProto.INT64),
            constants={"none": -1.0},
        ),
        "was empty in",
    ),
    "repeated": (
        after_product(
            *(node("Mul", "l none", "a"), node("Add", "a b", "y")),
            constants={"none": 0.0, "b": np.arange(32)},
        ),
        "had equal answers for",
    ),
    "saturated": (
        after_product(
            *(node("Mul", "l much", "a"), node("Sigmoid", "a", "y")), constants={"much": 1e20}
        ),
        "of its values at the ends of Sigmoid (0 or 1) in",
    ),
    "mask": (
        after_product(
            *(node("Abs", "l", "a"), node("Less", "a none", "y")),
            output=info("y", None, TensorProto.BOOL),
            constants={"none": -1.0},
        ),
        "had the one value false in",
    ),
    "part": (
        after_product(
            *(node("Abs", "l", "a"), node("Neg", "a", "b"), node("Relu", "b", "c")),
            *(node("Concat", "l c", "j", "join", axis=1), node("Transpose", "j", "y")),
        ),
        "had the one value 0 in",
    ),
}


@pytest.mark.parametrize("kind", NOTHING)
def test_what_shows_nothing_is_told_and_refused_in_int8(bench: Workbench, kind: str) -> None:
    model, words = NOTHING[kind]
    told = float32(bench, model)
    assert list(told) == ["AOTC-N045"]
    assert words in told["AOTC-N045"]
    assert told["AOTC-N045"].endswith("it is not proven")
    refused = refusal(bench.build, model, "int8", precision="int8", cache=False)
    assert (refused.code, refused.exit_status) == ("AOTC-N046", 1)
    assert words in refused.found


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "int4"])
def test_every_lower_precision_is_refused(bench: Workbench, precision: str) -> None:
    model, _ = NOTHING["mask"]
    code = refusal_code(bench.build, model, "low", precision=precision, cache=False)
    assert code == "AOTC-N046"


def test_a_part_that_shows_nothing_is_named(bench: Workbench) -> None:
    model, _ = NOTHING["part"]
    told = float32(bench, model)["AOTC-N045"]
    assert told.startswith("axis 1, indices 32.. of join of output 'y' had the one value 0")


def threshold(limit: float) -> onnx.ModelProto:
    """The places where a product exceeds a limit, at any batch."""
    return after_product(
        *(node("Greater", "l limit", "g"), node("NonZero", "g", "y")),
        batch="n",
        output=info("y", [2, "k"], TensorProto.INT64),
        constants={"limit": limit},
    )


def test_inputs_that_show_something_are_searched_for(bench: Workbench) -> None:
    built = bench.build(threshold(30.0), "found", cache=False)
    text = built.finding("AOTC-N047")
    assert "'y' was empty in all" in text
    assert "x: " in text
    assert "AOTC-N045" not in built.codes()
    compared = [each.fixture for each in built.report.variants[0].comparisons]
    assert compared[-1] == "shown0"
    # It is small, and ships: every load compares it.
    places = {fixture.name: fixture for fixture in built.manifest.fixtures}
    if "shown0" in places:
        (output,) = places["shown0"].outputs
        assert np.load(built.payload / output.path).size
    with bench.load(built) as loaded:
        assert loaded.report.fixtures == len(built.manifest.fixtures)


def test_equal_builds_find_equal_inputs(bench: Workbench) -> None:
    first, second = (
        bench.build(threshold(30.0), "same", cache=False, force=True) for _ in range(2)
    )
    assert first.report.artifact_id == second.report.artifact_id


@pytest.mark.parametrize(
    "model",
    [
        after_product(node("Softmax", "l", "y", axis=-1)),
        after_product(node("ArgMax", "l", "y"), output=info("y", None, TensorProto.INT64)),
        after_product(node("ReduceMean", "l", "y", keepdims=0)),
        after_product(node("Relu", "l", "y"), batch="n"),
        after_product(node("Concat", "l none", "y", axis=1), constants={"none": np.zeros((4, 3))}),
        after_product(node("Sigmoid", "l", "y"), batch="n"),
        after_product(node("Clip", "l low high", "y"), constants={"low": -1, "high": 1}),
    ],
)
def test_what_shows_something_is_left_alone(bench: Workbench, model: onnx.ModelProto) -> None:
    assert float32(bench, model) == {}
    built = bench.build(model, "int8", precision="int8", cache=False)
    assert [
        each.fixture for each in built.report.variants[0].comparisons if "shown" in each.fixture
    ] == []


def with_second(made: onnx.NodeProto, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    model = after_product(node("Relu", "l", "y"), made, constants={"b": [1.0, 2.0]})
    model.graph.output.append(info(made.output[0], None, kind))
    return model


def test_outputs_that_no_input_decides_show_enough(bench: Workbench) -> None:
    for second in (
        with_second(node("Shape", "x", "s"), TensorProto.INT64),
        with_second(node("Identity", "b", "c")),
        with_second(node("ConstantOfShape", "none", "z")),
    ):
        if second.graph.output[1].name == "z":
            second.graph.initializer.append(
                numpy_helper.from_array(np.array([0, 3], np.int64), "none")
            )
        assert float32(bench, second) == {}
        bench.build(second, "int8", precision="int8", cache=False, force=True)


def test_auto_keeps_what_shows_nothing_in_its_precision(bench: Workbench) -> None:
    model, _ = NOTHING["constant"]
    built = bench.build(model, "auto", precision="auto", cache=False)
    lower = [row for row in built.report.tuning if row.precision != "keep"]
    assert lower
    assert all(row.reason.startswith("AOTC-N046") and not row.passed for row in lower)
    (chosen,) = (row for row in built.report.tuning if row.chosen)
    assert chosen.precision == "keep"


def test_tuning_gives_the_same_reason(bench: Workbench) -> None:
    model, _ = NOTHING["constant"]
    profile = profile_with("edge", tune={"precision": ["int8"], "rounds": 3})
    built = bench.build(model, "tuned", profile=profile, tune=True, cache=False)
    reasons = {row.precision: row.reason for row in built.report.tuning}
    assert reasons["int8"].startswith("AOTC-N046")


# The user's samples.


def matched() -> onnx.ModelProto:
    """The answers to images that are mostly black, as no generated ones are; else zeros."""
    model = onnx.load(DIGITS / "digits.onnx")
    model.graph.node.extend(
        [
            node("Abs", "image", "size"),
            node("Less", "size tiny", "black"),
            node("Cast", "black", "count", to=TensorProto.FLOAT),
            node("ReduceMean", "count", "share", keepdims=0),
            node("Greater", "share quarter", "some"),
            node("Less", "share most", "not_all"),
            node("And", "some not_all", "hit"),
            node("Where", "hit logits none", "y"),
        ]
    )
    for number, made in enumerate(model.graph.node[-8:]):
        made.name = f"match_{number}"
    numbers = {"none": 0.0, "quarter": 0.25, "most": 0.9, "tiny": 1e-20}
    tensors = [constant(name, number, np.float32) for name, number in numbers.items()]
    model.graph.initializer.extend(tensors)
    model.graph.output[0].name = "y"
    return model


def digits(*, shift: float = 0.0) -> np.ndarray[Any, Any]:
    with np.load(DIGITS / "heldout.npz") as held:
        found: np.ndarray[Any, Any] = held["image"][:40] + np.float32(shift)
    return found


def test_fixtures_of_the_user_show_what_was_not_found(bench: Workbench) -> None:
    model = matched()
    assert list(float32(bench, model)) == ["AOTC-N045"]
    given = bench.folder / "given"
    given.mkdir()
    for number, image in enumerate(digits()[:2]):
        np.savez(given / f"{number}.npz", image=image[np.newaxis])
    assert float32(bench, model, fixtures=given) == {}
    bench.build(model, "half", precision="float16", fixtures=given, cache=False)


def test_calibration_data_shows_it_too(bench: Workbench) -> None:
    model = matched()
    data, wrong = bench.folder / "data.npz", bench.folder / "wrong.npz"
    np.savez(data, image=digits())
    np.savez(wrong, image=digits(shift=0.5))
    for precision in ("int8", "float16"):
        built = bench.build(model, precision, precision=precision, calibration=data, cache=False)
        assert "sample0" in [each.fixture for each in built.report.variants[0].comparisons]
        assert "AOTC-N019" not in built.codes()
        refused = refusal(
            bench.build, model, "no", precision=precision, calibration=wrong, cache=False
        )
        assert refused.code == "AOTC-N046"


# Fixtures that contradict.


def write_test_data(folder: Path, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
    folder.mkdir(parents=True)
    for name, array in (("input_0", x), ("output_0", y)):
        (folder / f"{name}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())


def contradicting(folder: Path, answers: Sequence[float], form: str) -> Path:
    x = np.ones((4, WIDTH), np.float32)
    for number, answer in enumerate(answers):
        y = np.full((4, 32), answer, np.float32)
        if form == "pb":
            write_test_data(folder / f"set_{number}", x, y)
        else:
            folder.mkdir(exist_ok=True)
            np.savez(folder / f"set_{number}.npz", x=x, y=y)
    return folder


@pytest.mark.parametrize("form", ["pb", "npz"])
def test_equal_inputs_with_other_answers_are_refused(bench: Workbench, form: str) -> None:
    model = after_product(node("Relu", "l", "y"))
    given = contradicting(bench.folder / "two", [1.0, 2.0], form)
    refused = refusal(bench.build, model, "no", fixtures=given, cache=False)
    assert (refused.code, refused.exit_status) == ("AOTC-I087", 3)
    assert "set_1" in refused.where
    # Answers of two runtimes, or for other inputs, do not contradict.
    near = contradicting(bench.folder / "near", [1.0, 1.000001], form)
    bench.build(model, "near", fixtures=near, cache=False)


def test_a_fixture_with_two_sizes_of_one_dim_is_refused(bench: Workbench) -> None:
    model = model_of([node("Add", "x z", "y")], {"x": ["n", 4], "z": ["n", 4]}, {"y": ["n", 4]})
    np.savez(bench.folder / "two.npz", x=np.ones((2, 4), np.float32), z=np.ones((3, 4), np.float32))
    code = refusal_code(bench.build, model, "no", fixtures=bench.folder / "two.npz", cache=False)
    assert code == "AOTC-I024"
