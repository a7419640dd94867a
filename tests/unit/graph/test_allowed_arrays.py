"""Arrays held to stated values: checked, drawn and cut, in every type that can state them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aotc.base.errors import AotcError
from aotc.graph.allowed_arrays import cut_to_allowed, draw, ends_of, filled, outside, seen_values
from aotc.graph.values import numpy_dtype
from aotc.spec.allowed_values import STATABLE, AllowedValues
from aotc.spec.payload import Value

NUMBERS = sorted(STATABLE - {"string"})
RNG = np.random.default_rng(5)
FLOATS = [name for name in NUMBERS if "float" in name]


def value(dtype: str, **stated: Any) -> Value:
    return Value(name="speed", dtype=dtype, allowed=AllowedValues(**stated))


def array(dtype: str, *numbers: float) -> Any:
    return np.array(numbers).astype(numpy_dtype(dtype))


def checked(array: Any, value: Value, **sizes: int) -> str:
    assert value.allowed is not None
    return outside(array, value.allowed, sizes)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_of_every_type_are_held_to_bounds(dtype: str) -> None:
    stated = value(dtype, min=1, max="time")
    assert checked(array(dtype, 1, 5, 9), stated, time=9) == ""
    assert checked(array(dtype, 1, 5, 9), stated, time=8) == "9, the largest of 3"
    assert checked(array(dtype, 0, 5), stated, time=8) == "0, the smallest of 2"
    assert checked(array(dtype), stated, time=0) == ""
    assert checked(array(dtype, 9)[0:1].reshape(()), stated, time=8) == "9"


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_of_every_type_are_held_to_values(dtype: str) -> None:
    few, many = value(dtype, values=(3, 5)), value(dtype, values=tuple(range(3, 23)))
    for stated in (few, many):
        assert checked(array(dtype, 5, 3, 3), stated) == ""
        assert checked(array(dtype, 5, 2, 1), stated) == "2"
    np.testing.assert_array_equal(cut_to_allowed(array(dtype, 5, 4), few, {}), array(dtype, 5, 3))


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_is_never_allowed_and_bounds_are_rounded_as_values_are(dtype: str) -> None:
    bounds, listed = value(dtype, min=0.1, max=2.7), value(dtype, values=(0.1,))
    for stated in (value(dtype, min=0), value(dtype, max=0), bounds):
        assert "NaN" in checked(array(dtype, 0.2, np.nan), stated)
    assert checked(array(dtype, np.nan), listed) == "NaN"
    # 0.1 and 2.7 have no exact form in any of these types.
    assert checked(array(dtype, 0.1, 2.7), bounds) == checked(array(dtype, 0.1), listed) == ""
    assert checked(array(dtype, np.inf), bounds) == "inf"
    cut = cut_to_allowed(array(dtype, np.nan, 9, 1), bounds, {})
    np.testing.assert_array_equal(cut, array(dtype, 0.1, 2.7, 1))
    assert cut.dtype == numpy_dtype(dtype)


def test_text_is_held_to_values() -> None:
    stated = value("string", values=("en", "de"))
    drawn = draw(stated, (20,), {}, (None, None), np.random.default_rng(1))
    assert set(drawn) == {"en", "de"}
    assert checked(drawn, stated) == ""
    assert checked(np.array(["en", "fr"]), stated) == "'fr'"
    assert list(filled(stated, (2,), "de")) == ["de", "de"]


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("shape", [(), (1,), (40,)])
@pytest.mark.parametrize(
    "stated",
    [{"min": 1, "max": 2}, {"min": 5}, {"max": 3}, {"max": "time"}, {"values": (2, 7)}],
)
def test_what_is_drawn_is_allowed(dtype: str, shape: tuple[int, ...], stated: Any) -> None:
    asked, sizes = value(dtype, **stated), {"time": 30}
    found = draw(asked, shape, sizes, (None, None), np.random.default_rng(4))
    assert (found.shape, found.dtype) == (shape, numpy_dtype(dtype))
    assert checked(found, asked, **sizes) == ""
    # A length as long as there is: most models of lengths are exported at one.
    if "time" in stated.values():
        assert found.max() == 30
    for end in ends_of(asked, sizes):
        assert checked(filled(asked, shape, end), asked, **sizes) == ""


def test_a_bound_that_is_not_stated_is_the_one_nearby() -> None:
    drawn = draw(value("int64", max="time"), (400,), {"time": 3}, (0, 9), np.random.default_rng(2))
    assert set(drawn) == {0, 1, 2, 3}
    drawn = draw(value("int64", min=5), (400,), {}, (0, 6), np.random.default_rng(2))
    assert set(drawn) == {5, 6}


def test_sizes_that_allow_no_value_are_refused() -> None:
    with pytest.raises(AotcError) as refused:
        draw(
            value("int64", min=4, max="time"),
            (2,),
            {"time": 3},
            (None, None),
            np.random.default_rng(0),
        )
    assert refused.value.code == "AOTC-S032"
    assert refused.value.found == "from 4 to time = 3 allows no value of speed"


@pytest.mark.parametrize("dtype", NUMBERS)
def test_what_was_seen_is_what_is_drawn(dtype: str) -> None:
    arrays = [array(dtype, 5, 3), array(dtype, 4, 9), array(dtype)]
    seen = seen_values(arrays, private=True)
    assert seen is not None and (seen.min, seen.max) == (3, 9)
    assert isinstance(seen.min, float) == ("float" in dtype)
    assert AllowedValues.problems_of(seen, "tensor", dtype) == []
    found = draw(value(dtype, min=seen.min, max=seen.max), (64,), {}, (0, 1), RNG)
    assert found.dtype == numpy_dtype(dtype) and 3 <= found.min() < found.max() <= 9


def test_what_is_not_finite_was_not_seen() -> None:
    assert seen_values([array("float32", np.nan, 2, np.inf)], private=True) == AllowedValues(
        min=2.0, max=2.0
    )
    assert seen_values([array("float32", np.nan)], private=True) is None
    assert seen_values([np.zeros(2, np.complex64)], private=True) is None
    assert seen_values([], private=True) is None


def test_integers_that_json_does_not_hold_are_cut() -> None:
    limits = np.iinfo(np.int64)
    seen = seen_values([np.array([limits.min, limits.max])], private=True)
    assert seen == AllowedValues(min=1 - 2**53, max=2**53 - 1)


def test_truth_values_and_text_are_listed() -> None:
    truths = [np.array([True, True]), np.array([[False]])]
    assert seen_values(truths, private=True) == AllowedValues(values=(0, 1))
    words = [np.array(["b", "a", "b"], dtype=object)]
    assert seen_values(words, private=False) == AllowedValues(values=("a", "b"))
    assert seen_values(words, private=True) is None, "words of the user stay with the user"
