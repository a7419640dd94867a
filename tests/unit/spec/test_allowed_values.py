"""Stated values of inputs: what can be written, what is refused, and what it means at a call."""

from __future__ import annotations

from typing import Any

import pytest

from aotc.spec.allowed_values import AllowedValues, misfit, read_allowed
from aotc.spec.codec import ParseError, decode, encode
from aotc.spec.payload import Value
from aotc.spec.profile import Profile


def profile(**stated: Any) -> Profile:
    return decode(
        Profile, {"schema": "aotc.profile/1", "name": "speech", "inputs": {"speed": stated}}
    )


def allowed(**stated: Any) -> AllowedValues:
    found = profile(**stated).inputs["speed"].allowed
    assert found is not None
    return found


def test_an_input_of_which_no_values_are_stated_has_none() -> None:
    assert profile(dtype="float32").inputs["speed"].allowed is None
    assert profile(values=[]).inputs["speed"].allowed is None


@pytest.mark.parametrize(
    ("stated", "text"),
    [
        ({"min": 0.5, "max": 2.0}, "from 0.5 to 2"),
        ({"min": 3, "max": 3}, "3"),
        ({"min": -1}, "at least -1"),
        ({"max": "time"}, "at most time"),
        ({"min": 1, "max": "past + seq - 1"}, "from 1 to past + seq - 1"),
        ({"values": [8000, 16000]}, "8000, 16000"),
        ({"values": ["en", "de"]}, "'en', 'de'"),
    ],
)
def test_what_is_stated_is_told_and_written_as_it_was(stated: dict[str, Any], text: str) -> None:
    assert allowed(**stated).text() == text
    assert encode(profile(**stated))["inputs"]["speed"] == stated
    dtype = "string" if "'" in text else "float32"
    value = Value(name="speed", dtype=dtype, allowed=allowed(**stated))
    assert decode(Value, encode(value)) == value


def test_sums_of_dims_are_known_at_a_call() -> None:
    found = allowed(min=1, max="2*time - 1")
    assert found.bounds({"time": 4}) == (1, 7)
    assert found.text({"time": 4}) == "from 1 to 2*time - 1 = 7"
    assert found.bounds({}) == (1, None)
    renamed = found.with_dims({"time": "x time"}.__getitem__)
    assert renamed.max == '"x time" + "x time" - 1'
    assert renamed.bounds({"x time": 4}) == (1, 7)


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        ({"min": 3, "max": 2}, "inputs.speed.min: 3 is more than max 2"),
        (
            {"min": 1, "values": [2]},
            "inputs.speed.min: is stated beside values, which say all",
        ),
        ({"values": [1, 1.0]}, "inputs.speed.values: has one value twice"),
        ({"values": [1, "a"]}, "inputs.speed.values: are text and numbers; state one of both"),
        (
            {"max": "time*seq"},
            "inputs.speed.max: 'time*seq' multiplies dims; only sums are supported; a number, or a "
            "sum of dims, is expected",
        ),
        (
            {"max": 2**53},
            "inputs.speed: 9e+15 is beyond 2^53 - 1, up to which integers are exact here",
        ),
    ],
)
def test_statements_that_contradict_themselves_are_refused(
    stated: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ParseError) as refused:
        profile(**stated)
    (found,) = refused.value.problems
    assert (str(found), found.code) == (problem, "AOTC-I110")


@pytest.mark.parametrize("value", [True, None, float("nan"), float("inf"), {"a": 1}])
def test_what_is_no_value_is_refused(value: Any) -> None:
    with pytest.raises(ParseError, match="expected int or float or str"):
        profile(values=[value])


@pytest.mark.parametrize(
    ("words", "stated"),
    [
        ("0.5..2.0", {"min": 0.5, "max": 2.0}),
        ("-1..1", {"min": -1, "max": 1}),
        ("..time", {"max": "time"}),
        ("1..time-1", {"min": 1, "max": "time-1"}),
        ("1e-3..", {"min": 0.001}),
        ("8000,16000", {"values": [8000, 16000]}),
        ("8000", {"values": [8000]}),
        ("en, de", {"values": ["en", "de"]}),
    ],
)
def test_the_short_form_says_the_same(words: str, stated: dict[str, Any]) -> None:
    assert read_allowed(words) == allowed(**stated)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("..", "(top): '..' has neither of two bounds"),
        ("1,,2", "(top): '1,,2' is not MIN..MAX or up to 256 values"),
        ("2..1", "min: 2 is more than max 1"),
        ("1,1", "values: has one value twice"),
    ],
)
def test_short_forms_that_say_nothing_are_refused(words: str, problem: str) -> None:
    with pytest.raises(ParseError) as refused:
        read_allowed(words)
    (found,) = refused.value.problems
    assert (str(found), found.code) == (problem, "AOTC-I110")


def test_a_manifest_states_values_of_the_input_alone() -> None:
    text = {"name": "language", "dtype": "string", "allowed": {"max": 1}}
    sequence = {"name": "x", "dtype": "float32", "kind": "sequence", "allowed": {"max": 1}}
    byte = {"name": "x", "dtype": "uint8", "allowed": {"min": -1, "max": "time"}}
    for stated, problem in (
        (text, "allowed: text has no bounds; state values"),
        (sequence, "allowed: a sequence of float32 has no values that can be stated"),
        (byte, "allowed.min: -1 is outside 0..255"),
    ):
        with pytest.raises(ParseError) as refused:
            decode(Value, stated)
        assert [str(each) for each in refused.value.problems] == [problem]


@pytest.mark.parametrize(
    ("value", "dtype", "why"),
    [
        (8000, "int64", ""),
        (2.0, "int8", ""),
        (0.5, "int64", "0.5 has a fraction"),
        (128, "int8", "128 is outside -128..127"),
        (-1, "uint8", "-1 is outside 0..255"),
        (1e18, "int64", "1e+18 is beyond 2^53 - 1, up to which integers are exact here"),
        (70000, "float16", "70000 is beyond 65504"),
        (1e39, "float32", "1e+39 is beyond 3.40282e+38"),
        (1e300, "float64", ""),
        ("fast", "float32", "'fast' is no number"),
        (1, "string", "1 is no text"),
        ("en", "string", ""),
    ],
)
def test_values_outside_of_a_type_are_told(value: Any, dtype: str, why: str) -> None:
    assert misfit(value, dtype) == why
