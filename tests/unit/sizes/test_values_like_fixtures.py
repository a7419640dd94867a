"""Values of inputs that only a library's operators know: those of the user's fixtures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aotc.sizes.inputs.fixtures import FixtureInputs, generate, hints_like
from aotc.spec.payload import Value

BYTES = Value(name="file", dtype="uint8", shape=("bytes",))
WORDS = Value(name="words", dtype="string", shape=("rows", 2))


def given(name: str, **inputs: Any) -> FixtureInputs:
    return FixtureInputs(name, inputs, {})


@pytest.mark.parametrize(
    ("size", "expected"), [(0, []), (2, [7, 8]), (3, [7, 8, 9]), (5, [7, 8, 9, 7, 8])]
)
def test_they_are_cut_off_or_begin_again(size: int, expected: list[int]) -> None:
    large = given("large", file=np.arange(50, dtype=np.uint8))
    small = given("small", file=np.array([7, 8, 9], np.uint8))
    hints = hints_like([large, small], [BYTES], {})
    made = generate([BYTES], {"bytes": size}, hints, 0)["file"]
    assert (made.tolist(), made.dtype) == (expected, np.uint8)


def test_so_are_texts_along_each_axis() -> None:
    sample = np.array([["a", "b"], ["c", "d"]], object)
    hints = hints_like([given("one", words=sample)], [WORDS], {})
    made = generate([WORDS], {"rows": 3}, hints, 0)["words"]
    assert made.tolist() == [["a", "b"], ["c", "d"], ["a", "b"]]


def test_other_hints_stay_where_no_fixture_is_complete() -> None:
    hints = {"file": {"kind": "ones"}}
    for few in ([], [given("other", words=np.array([["a", "b"]], object))]):
        assert hints_like(few, [BYTES], hints) == hints
    empty = given("empty", file=np.zeros(0, np.uint8))
    assert hints_like([empty], [BYTES], hints) == hints


def test_an_input_of_another_rank_is_drawn() -> None:
    hints = hints_like([given("one", file=np.array([7], np.uint8))], [BYTES], {})
    square = Value(name="file", dtype="uint8", shape=("rows", "bytes"))
    assert generate([square], {"rows": 2, "bytes": 2}, hints, 0)["file"].shape == (2, 2)
