"""Inputs that are made of a manifest alone: what is drawn of each type, and what cannot be made."""

from __future__ import annotations

from typing import Any

import numpy as np
import plain_manifest
import pytest

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.spec.allowed_values import AllowedValues
from aotc.spec.manifest import range_problems
from aotc.spec.payload import Value
from aotc.tools.example_inputs import made_example

MANIFEST = plain_manifest.manifest()


def made(value: Value, seen: AllowedValues | None = None) -> Any:
    ranges = {} if seen is None else {value.name: seen}
    stated = replace(MANIFEST, inputs=(value,), fixtures=(), input_ranges=ranges)
    first, again = (made_example(stated, {"n": 50}) for _ in range(2))
    np.testing.assert_array_equal(first.inputs["x"], again.inputs["x"])
    return first.inputs["x"]


def value(dtype: str, **fields: Any) -> Value:
    return Value(name="x", dtype=dtype, shape=("n", 4), **fields)


@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16", "int64", "uint8", "bool"))
def test_nothing_recorded_is_from_0_to_1(dtype: str) -> None:
    found = made(value(dtype))
    assert (found.shape, found.dtype.name) == ((50, 4), dtype)
    assert 0 <= found.min() < found.max() <= 1


def test_what_is_recorded_goes_before_what_is_allowed() -> None:
    stated = value("int64", allowed=AllowedValues(min=0, max=100))
    assert made(stated).max() > 50
    assert set(np.unique(made(stated, AllowedValues(min=3, max=5)))) == {3, 4, 5}


def test_what_is_allowed_may_depend_on_the_sizes() -> None:
    stated = value("int64", allowed=AllowedValues(min=0, max="n - 48"))
    assert made(stated, AllowedValues(min=0, max=7)).max() == 2


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (value("string"), "a tensor of string"),
        (Value(name="x", kind="sequence", dtype="float32"), "a sequence of float32"),
        (Value(name="x", kind="map", dtype="int64"), "a map of int64"),
    ],
)
def test_what_cannot_be_made(bad: Value, found: str) -> None:
    with pytest.raises(AotcError) as caught:
        made(bad)
    assert (caught.value.code, caught.value.found) == ("AOTC-I113", found)
    assert caught.value.fix == "Give inputs with --input."


def test_ranges_that_are_none() -> None:
    inputs = (value("float32"), Value(name="b", dtype="bool", shape=()))
    words, large = AllowedValues(values=("a",)), AllowedValues(min=1e40)
    assert not list(range_problems(inputs, {"b": AllowedValues(values=(0, 1))}))
    for name, seen, what in (
        ("other", large, "is not an input"),
        ("x", words, "'a' is no number"),
        ("x", large, "1e+40 is beyond 3.40282e+38"),
        ("b", words, "a tensor of bool has no values that can be stated"),
    ):
        (problem,) = range_problems(inputs, {name: seen})
        assert str(problem) == f"input_ranges.{name}: {what}"
