"""Which calls are accepted, and the full text of each refusal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plain_manifest import manifest

from aotc.base.errors import AotcError
from aotc.runtime.guards import Guard
from aotc.spec.payload import Value
from aotc.spec.shapes import Dim, Domain, Relation

IDS = Value(name="ids", dtype="int64", shape=("batch", "seq"))
MASK = Value(name="mask", dtype="int64", shape=("batch", "total"))
IMAGE = Value(name="image", dtype="float32", shape=("batch", 3, 4))
BOX = Domain(
    dims={"batch": Dim(min=1, max=8, opt=4), "seq": Dim(min=2, max=64, opt=8, multiple_of=2)},
    relations=(Relation(dim="total", terms=("seq",), constant=1),),
)
GUARD = Guard(manifest(IDS, MASK, IMAGE, domain=BOX))


def call(batch: int = 2, seq: int = 4) -> dict[str, Any]:
    return {
        "ids": np.zeros((batch, seq), np.int64),
        "mask": np.zeros((batch, seq + 1), np.int64),
        "image": np.zeros((batch, 3, 4), np.float32),
    }


def test_a_good_call_gives_its_sizes() -> None:
    inputs = call()
    checked = GUARD.check(inputs)
    assert not checked.outside
    assert checked.sizes == {"batch": 2, "seq": 4, "total": 5}
    assert all(checked.inputs[name] is inputs[name] for name in inputs)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"ids": np.zeros((2, 4), np.int32)},
            "AOTC-R002 input 'ids' has the wrong type [input ids]"
            " (expected int64 array; found int32[2, 4])",
        ),
        (
            {"image": np.zeros((2, 3, 4), ">f4")},
            "AOTC-R002 input 'image' has the wrong type [input image]"
            " (expected float32 array; found >f4 array)",
        ),
        (
            {"ids": [[1], [1, 2]]},
            "AOTC-R002 input 'ids' has the wrong type [input ids]"
            " (expected int64 array; found a ragged list)",
        ),
        (
            {"ids": None},
            "AOTC-R002 input 'ids' has the wrong type [input ids]"
            " (expected int64 array; found nothing)",
        ),
        (
            {"ids": np.zeros(4, np.int64)},
            "AOTC-R003 input 'ids' has the wrong number of dims [input ids]"
            " (expected 2: [batch, seq]; found 1: [4])",
        ),
        (
            {"image": np.zeros((2, 1, 4), np.float32)},
            "AOTC-R004 dim 1 of input 'image' has the wrong size [input image]"
            " (expected 3: [batch, 3, 4]; found 1: [2, 1, 4])",
        ),
        (
            {"image": np.zeros((3, 3, 4), np.float32)},
            "AOTC-R004 dim 'batch' has two sizes in one call [input image]"
            " (expected 2, as in input 'ids'; found 3)",
        ),
        (
            {"mask": np.zeros((2, 4), np.int64)},
            "AOTC-R004 dims disagree: total = seq + 1 [dim total] (expected 5; found 4)",
        ),
    ],
)
def test_a_bad_call_is_refused(change: dict[str, Any], line: str) -> None:
    with pytest.raises(AotcError) as caught:
        GUARD.check(call() | change)
    assert caught.value.line() == line


def test_every_wrong_name_is_listed() -> None:
    inputs = call()
    inputs["imag"] = inputs.pop("image")
    inputs["zzz"] = 1
    with pytest.raises(AotcError) as caught:
        GUARD.check(inputs)
    error = caught.value
    assert [item.what for item in (error, *error.also)] == [
        "the model has no input 'imag'; did you mean 'image'?",
        "the model has no input 'zzz'",
        "input 'image' is missing",
    ]
    assert error.code == "AOTC-R001"
    assert (error.expected, error.found) == ("ids, mask, image", "ids, mask, imag, zzz")


def test_of_many_names_the_first_are_told() -> None:
    names = [f"input{index}" for index in range(201)]
    guard = Guard(manifest(*(Value(name=name, dtype="float32", shape=()) for name in names)))
    with pytest.raises(AotcError) as caught:
        guard.check({"input200": np.float32(1)})
    error = caught.value
    assert error.line() == (
        "AOTC-R001 input 'input0' is missing [inputs]"
        " (expected input0, input1, input2, input3, input4 and 196 more; found input200)"
    )
    told = [refusal.what for refusal in error.also]
    assert told[:4] == [f"input 'input{index}' is missing" for index in range(1, 5)]
    assert told[4:] == ["195 more names do not fit"]


def test_array_likes_of_the_right_type_are_taken() -> None:
    guard = Guard(manifest(Value(name="rate", dtype="int64", shape=())))
    for value in (16000, np.int64(16000), np.array(16000)):
        array = guard.check({"rate": value}).inputs["rate"]
        assert (array.dtype, array.shape) == (np.int64, ())
    with pytest.raises(AotcError, match="AOTC-R002"):
        guard.check({"rate": 16000.0})


def test_a_size_outside_of_the_range_is_told_or_refused() -> None:
    assert GUARD.check(call(batch=9, seq=5)).outside == ("batch", "seq")
    strict = Guard(manifest(IDS, MASK, IMAGE, domain=BOX, strict=True))
    assert not strict.check(call(batch=8, seq=64)).outside
    with pytest.raises(AotcError) as caught:
        strict.check(call(batch=9, seq=5))
    lines = [error.line() for error in (caught.value, *caught.value.also)]
    assert lines == [
        "AOTC-S010 dim 'batch' is outside the proven range [dim batch] (expected 1..8; found 9)",
        "AOTC-S010 dim 'seq' is outside the proven range [dim seq]"
        " (expected 2..64 in steps of 2; found 5)",
    ]


def test_a_variant_may_have_a_narrower_domain() -> None:
    narrow = Domain(dims={"batch": Dim(min=1, max=1, opt=1)})
    guard = Guard(manifest(IDS, MASK, IMAGE, domain=BOX), narrow)
    assert guard.check(call(batch=2)).outside == ("batch",)


def test_an_input_of_unknown_rank_was_proven_as_a_vector() -> None:
    value = Value(name="x", dtype="float32")
    domain = Domain(dims={"x.0": Dim(min=1, max=4, opt=2)})
    guard = Guard(manifest(value, domain=domain))
    assert guard.check({"x": np.zeros(3, np.float32)}).sizes == {"x.0": 3}
    assert guard.check({"x": np.zeros(5, np.float32)}).outside == ("x.0",)
    assert guard.check({"x": np.zeros((2, 2), np.float32)}).outside == ("x.0",)
    strict = Guard(manifest(value, domain=domain, strict=True))
    with pytest.raises(AotcError, match=r"expected 1\.\.4; found an input that is not a vector"):
        strict.check({"x": np.zeros((2, 2), np.float32)})


def test_text_must_be_text() -> None:
    guard = Guard(manifest(Value(name="t", dtype="string", shape=("n",))))
    for good in (np.array(["a", "b"]), np.array(["a", "b"], object), ["a", "b"]):
        assert guard.check({"t": good}).sizes == {"n": 2}
    for bad, found in (
        (np.array([1, "a"], object), "other objects"),
        (np.array([b"a"]), "string[1]"),
        ([1, 2], "int64[2]"),
    ):
        with pytest.raises(AotcError) as caught:
            guard.check({"t": bad})
        assert (caught.value.code, caught.value.found) == ("AOTC-R002", found)


def test_sequences_optionals_and_maps() -> None:
    guard = Guard(
        manifest(
            Value(name="s", kind="sequence", dtype="float32", shape=("n", 2)),
            Value(name="o", kind="optional", dtype="float32", shape=("n",)),
            Value(name="m", kind="map", dtype="string"),
        )
    )
    two, item = np.zeros((1, 2), np.float32), np.zeros(1, np.float32)
    good = {"s": [two, two], "o": item, "m": {"a": 1.0}}
    assert not guard.check(good).outside
    assert guard.check(good | {"o": None}).inputs["o"] is None
    assert guard.check({"s": [], "m": [{"a": 1.0}]}).inputs["o"] is None
    bad = [
        ({"s": two}, "AOTC-R002", "list of float32 arrays", "float32[1, 2]"),
        ({"s": [item]}, "AOTC-R003", "2: [n, 2]", "1: [1]"),
        ({"s": [two[:, :1]]}, "AOTC-R004", "2: [n, 2]", "1: [1, 1]"),
        ({"o": {}}, "AOTC-R002", "float32 array, list of them, or None", "map of 0"),
        ({"m": {1: 1.0}}, "AOTC-R002", "dict with str keys", "map of 1"),
        ({"m": item}, "AOTC-R002", "dict with str keys", "float32[1]"),
    ]
    for change, code, expected, found in bad:
        with pytest.raises(AotcError) as caught:
            guard.check(good | change)
        error = caught.value
        assert (error.code, error.expected, error.found) == (code, expected, found)
