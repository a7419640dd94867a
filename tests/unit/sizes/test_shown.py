"""Whether the answers of a set of fixtures show anything of an output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from model_parts import constant, info, model_of, node
from onnx import TensorProto

from aotc.sizes.dependence import Dependence
from aotc.sizes.shown import Answer, Ends, Lack, answer_of, lack_of

SIGMOID = Ends(op_type="Sigmoid", numbers=(0.0, 1.0), limit=0.99)
DRAWN = np.random.default_rng(20261126)


def answers(*outputs: Any, ends: Ends | None = None) -> list[Answer]:
    """Answers to inputs of one shape that all differ."""
    given = ({"x": np.array([float(number)])} for number in range(len(outputs)))
    return [answer_of(output, ends, one) for output, one in zip(outputs, given, strict=True)]


def lack(*outputs: Any, ends: Ends | None = None) -> Lack:
    found = lack_of(answers(*outputs, ends=ends), ends)
    assert found is not None
    return found


def noise(*shape: int) -> np.ndarray[Any, Any]:
    return DRAWN.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("outputs", "kind", "words"),
    [
        ([np.zeros((2, 0), np.int64)] * 3, "empty", "was empty in all 3 fixtures"),
        (
            [np.full((2, 3), np.nan, np.float32), np.full(4, -np.inf, np.float32)],
            "not-finite",
            "was NaN or infinite throughout in all 2 fixtures",
        ),
        ([np.zeros((2, 3), np.float32)], "constant", "had the one value 0 in the only fixture"),
        (
            [np.zeros(3, bool), np.zeros(4, bool)],
            "constant",
            "had the one value false in all 2 fixtures",
        ),
        ([np.full(2, 7, np.int64)] * 2, "constant", "had the one value 7 in all 2 fixtures"),
        (
            [np.array(["a", "a"], object)] * 2,
            "constant",
            "had the one value 'a' in all 2 fixtures",
        ),
        (
            [np.array([0.5, -1.0, 3.0], np.float32)] * 4,
            "repeated",
            "had equal answers for 4 different inputs",
        ),
        (
            [np.zeros((0, 3), np.int64), np.full(4, np.nan, np.float32)],
            "empty",
            "was empty in 1 of 2 fixtures and was NaN or infinite throughout in 1 of 2 fixtures",
        ),
        ([[np.zeros(2), np.zeros(3)], [np.zeros(1)]], "constant", "had the one value 0"),
    ],
)
def test_answers_that_show_nothing(outputs: Sequence[Any], kind: str, words: str) -> None:
    found = lack(*outputs)
    assert (found.kind, found.unsure) == (kind, False)
    assert found.what.startswith(words)


def test_values_at_the_ends_are_counted() -> None:
    held = np.concatenate([np.zeros(500), np.ones(498), [0.5, 0.25]]).astype(np.float32)
    found = lack(held, held[::-1].copy(), ends=SIGMOID)
    assert found.kind == "saturated"
    assert found.what == "had 99.8% of its values at the ends of Sigmoid (0 or 1) in all 2 fixtures"
    # Of a value in 60 between the ends something is seen.
    assert lack_of(answers(held[-60:], held[-50:], ends=SIGMOID), SIGMOID) is None
    # Without an operator that cuts off, two values are an answer.
    assert lack_of(answers(held.round(), held[::-1].round())) is None


@pytest.mark.parametrize(
    "outputs",
    [
        [noise(2, 3), noise(2, 3)],
        [np.array([3]), np.array([4])],
        [np.zeros(4, bool), np.array([True, False])],
        # One fixture that shows something is enough, whatever the others do.
        [np.zeros((2, 0), np.int64)] * 5 + [np.array([[1], [2]])],
        [np.zeros((2, 0), np.int64), np.array([[0], [0]])],
        [np.full(3, np.nan, np.float32), np.array([np.nan, 1.0, 2.0], np.float32)],
        [{"a": 0.25, "b": 0.75}, {"a": 0.5, "b": 0.5}],
    ],
)
def test_answers_that_show_something(outputs: Sequence[Any]) -> None:
    assert lack_of(answers(*outputs)) is None


def test_one_answer_cannot_tell_whether_it_depends_on_the_input() -> None:
    assert lack(noise(2, 3)).unsure
    assert lack(np.float32(0.25)).unsure
    # Nor can answers to equal inputs.
    output = noise(2, 3)
    same = [answer_of(output, None, {"x": np.zeros(1)})] * 3
    found = lack_of(same)
    assert found is not None
    assert found.unsure
    # Inputs of other sizes may be the same in all that an answer looks at.
    longer = [answer_of(output, None, {"x": np.zeros(size)}) for size in (1, 2)]
    found = lack_of(longer)
    assert found is not None
    assert found.unsure


def test_narrow_types_are_numbers() -> None:
    import ml_dtypes

    array = np.array([np.nan, 1.0, 1.0], ml_dtypes.bfloat16)
    assert lack(array, array).what == "had the one value 1 in all 2 fixtures"
    assert lack_of(answers(array, np.array([2.0, 3.0, 0.5], ml_dtypes.bfloat16))) is None


# What the graph tells of an output.


def traced(*nodes: onnx.NodeProto, **constants: Any) -> Dependence:
    inputs = [info("x", ["n", 4]), info("ids", ["n"], TensorProto.INT64)]
    tensors = [constant(name, value, np.float32) for name, value in constants.items()]
    return Dependence.of(model_of(nodes, inputs, [info("y", None)], tensors))


def test_outputs_of_sizes_and_constants_depend_on_no_value() -> None:
    found = traced(node("Shape", "x", "s"), node("Add", "c c", "y"), c=[1.0])
    assert (found.read_by("s"), found.read_by("s", through_sizes=True)) == ((), ("x",))
    assert found.read_by("y") == ()


def test_integers_of_integers_are_no_arithmetic_in_floats() -> None:
    found = traced(
        node("Mul", "ids ids", "y"),
        node("Cast", "ids", "f", to=TensorProto.FLOAT),
        node("Mul", "f f", "g"),
        node("Cast", "g", "z", to=TensorProto.INT64),
        node("Greater", "x c", "m"),
        c=[1.0],
    )
    assert [found.computes(name) for name in ("y", "z", "m")] == [False, True, True]


@pytest.mark.parametrize(
    ("nodes", "numbers"),
    [
        ([node("Sigmoid", "x", "y")], (0.0, 1.0)),
        ([node("Tanh", "x", "t"), node("Reshape", "t s", "y")], (-1.0, 1.0)),
        ([node("Sigmoid", "x", "t"), node("Mul", "t c", "u"), node("Sub", "u d", "y")], (-1, 9)),
        ([node("Sigmoid", "x", "t"), node("Sub", "d t", "y")], (0.0, 1.0)),
        ([node("Clip", "x d c", "y")], (1.0, 10.0)),
        ([node("Relu", "x", "y")], (0.0,)),
    ],
)
def test_ends_are_followed_to_the_output(
    nodes: Sequence[onnx.NodeProto], numbers: Sequence[float]
) -> None:
    found = traced(*nodes, c=10.0, d=1.0).ends("y")
    assert found is not None
    assert found.numbers == tuple(numbers)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Softplus", "x", "y")],
        [node("Sigmoid", "x", "t"), node("Mul", "t x", "y")],
        [node("Sigmoid", "x", "t"), node("Concat", "t x", "y", axis=1)],
        [node("Greater", "x c", "t"), node("Cast", "t", "y", to=TensorProto.FLOAT)],
    ],
)
def test_what_has_other_values_has_no_ends(nodes: Sequence[onnx.NodeProto]) -> None:
    assert traced(*nodes, c=10.0).ends("y") is None
