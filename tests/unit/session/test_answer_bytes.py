"""Answers of equal calls, compared byte for byte."""

from __future__ import annotations

from typing import Any

import numpy as np

from aotc.session.parity import RepeatedAnswers

NAN = np.float32(np.nan)


def answers(*calls: list[Any], names: tuple[str, ...] = ("y",)) -> RepeatedAnswers:
    found = RepeatedAnswers(names, calls[0])
    remaining = iter(calls[1:])
    found.repeat(lambda: next(remaining), len(calls) - 1)
    return found


def test_equal_bytes_are_no_difference() -> None:
    value = np.array([1, NAN, np.inf], np.float32)
    found = answers([value], [value.copy()], [value.copy()])
    assert (found.runs, found.differing_runs, found.outputs) == (2, 0, ())


def test_zeros_of_two_signs_differ() -> None:
    (output,) = answers([np.zeros(2)], [np.array([0.0, -0.0])]).outputs
    assert (output.differing_values, output.total_values, output.max_abs) == (1, 2, 0.0)


def test_the_call_with_most_differing_values_counts() -> None:
    first = np.zeros(4)
    one, two = np.array([0, 0, 0, 5.0]), np.array([1.0, 1, 0, 0])
    found = answers([first], [one], [first], [two])
    assert (found.runs, found.differing_runs) == (3, 2)
    (output,) = found.outputs
    assert (output.output, output.differing_values, output.total_values, output.max_abs) == (
        "y",
        2,
        4,
        5.0,
    )


def test_another_type_or_shape_differs() -> None:
    assert answers([np.zeros(2)], [np.zeros(3)]).differing_runs == 1
    assert answers([np.zeros(2)], [np.zeros(2, np.float32)]).differing_runs == 1


def test_outputs_without_an_array_are_compared() -> None:
    names = ("text", "items", "map", "kept")
    first = [np.array(["a"], object), [np.zeros(1)], {"a": 1.0}, np.ones(1)]
    other = [np.array(["b"], object), [np.ones(1)], {"a": 2.0}, np.ones(1)]
    assert answers(first, first, names=names).outputs == ()
    found = answers(first, other, names=names).outputs
    assert [output.output for output in found] == ["text", "items", "map"]
    assert {output.max_abs for output in found} == {None}


def test_what_is_not_a_number_has_no_difference() -> None:
    (output,) = answers([np.array([NAN])], [np.array([1], np.float32)]).outputs
    assert (output.differing_values, output.max_abs) == (1, None)


def test_empty_outputs_are_equal() -> None:
    assert answers([np.empty((0, 3))], [np.empty((0, 3))]).outputs == ()
