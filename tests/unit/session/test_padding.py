"""Padded inputs and cropped outputs: where elements are, and who owns their memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from graph_values import value
from hypothesis import given
from hypothesis import strategies as st

from aotc.session.padding import Padder
from aotc.spec.payload import Value
from aotc.spec.shapes import Crop, Padding, PadSpec


def padder(inputs: list[Value], crops: tuple[Crop, ...] = (), **pads: PadSpec) -> Padder:
    return Padder(inputs, Padding(inputs=pads, crops=crops))


def filled(
    array: Any, shape: tuple[int | str, ...], wanted: Mapping[str, int], spec: PadSpec
) -> Any:
    """The only input `x` padded, with sizes that follow from its shape."""
    sizes = {d: s for d, s in zip(shape, array.shape, strict=True) if isinstance(d, str)}
    made = padder([value("x", *shape, dtype=array.dtype.name)], x=spec)
    result: Any = made.pad({"x": array}, sizes, {**sizes, **wanted}).inputs["x"]
    return result


# -- pad


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("float32", -1.5),
        ("float16", 0.25),
        ("float64", float("-inf")),
        ("int64", -(2**53) + 1),
        ("int32", -100),
        ("uint8", 255),
        ("int8", -128),
        ("bool", True),
        ("bool", False),
        ("complex64", 2.0),
    ],
)
@pytest.mark.parametrize("side", ["right", "left"])
def test_each_type_is_filled_with_its_value(dtype: str, fill: Any, side: Any) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    found = filled(array, ("batch", "seq"), {"seq": 5}, PadSpec(value=fill, side=side))
    added = np.full((2, 2), fill, dtype)
    order = [array, added] if side == "right" else [added, array]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, np.concatenate(order, axis=1))


@pytest.mark.parametrize("side", ["right", "left"])
def test_text_is_filled_with_text(side: Any) -> None:
    array = np.array([["a", "b\u00e9"]], dtype=object)
    found = filled(array, (1, "seq"), {"seq": 3}, PadSpec(value="[PAD]", side=side))
    expected = ["a", "b\u00e9", "[PAD]"] if side == "right" else ["[PAD]", "a", "b\u00e9"]
    assert found.dtype == object
    assert found.tolist() == [expected]


def test_zero_is_the_value_and_right_the_side_where_nothing_is_said() -> None:
    found = padder([value("x", "n")]).pad({"x": np.ones(2, np.float32)}, {"n": 2}, {"n": 4})
    assert found.inputs["x"].tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("side", ["right", "left"])
def test_several_axes_are_filled_at_once(side: Any) -> None:
    array = np.arange(1, 7, dtype=np.int64).reshape(1, 2, 3)
    shape = ("batch", "height", "width")
    wanted = {"batch": 2, "height": 4, "width": 5}
    found = filled(array, shape, wanted, PadSpec(value=-1, side=side))
    ends = [(full - size, 0) for size, full in zip(array.shape, wanted.values(), strict=True)]
    widths = [end if side == "left" else end[::-1] for end in ends]
    np.testing.assert_array_equal(found, np.pad(array, widths, constant_values=-1))


def test_a_dim_that_stands_twice_is_filled_on_both_axes() -> None:
    array = np.ones((2, 2), bool)
    found = filled(array, ("seq", "seq"), {"seq": 3}, PadSpec(value=False))
    assert found.tolist() == [[True, True, False], [True, True, False], [False, False, False]]


def test_dims_that_follow_are_filled_as_well() -> None:
    made = padder(
        [value("ids", "seq"), value("past", "past", 2), value("mask", "total")],
        ids=PadSpec(value=9),
        mask=PadSpec(side="left"),
    )
    inputs = {"ids": np.ones(2), "past": np.ones((3, 2)), "mask": np.ones(5)}
    found = made.pad(inputs, {"seq": 2, "past": 3, "total": 5}, {"seq": 4, "past": 3, "total": 7})
    assert {name: array.shape for name, array in found.inputs.items()} == {
        "ids": (4,),
        "past": (3, 2),
        "mask": (7,),
    }
    assert found.inputs["mask"].tolist() == [0, 0, 1, 1, 1, 1, 1]
    assert (found.given, found.added) == (2 + 6 + 5, 2 + 0 + 2)


def test_only_inputs_that_grow_are_copied() -> None:
    made = padder([value("grows", "n"), value("stays", "m"), value("fixed", 3)])
    inputs = {"grows": np.arange(2), "stays": np.arange(4), "fixed": np.arange(3)}
    found = made.pad(inputs, {"n": 2, "m": 4}, {"n": 3, "m": 4})
    assert found.inputs["stays"] is inputs["stays"]
    assert found.inputs["fixed"] is inputs["fixed"]
    assert not np.shares_memory(found.inputs["grows"], inputs["grows"])
    assert inputs["grows"].tolist() == [0, 1]
    assert (found.given, found.added) == (9, 1)


def test_writing_to_what_is_padded_leaves_the_callers_arrays_alone() -> None:
    array = np.arange(4, dtype=np.float32)
    before = array.copy()
    found = filled(array, ("n",), {"n": 8}, PadSpec())
    found[:] = 7
    np.testing.assert_array_equal(array, before)


def test_the_callers_mapping_is_not_changed() -> None:
    inputs = {"x": np.zeros(1)}
    array = inputs["x"]
    padder([value("x", "n")]).pad(inputs, {"n": 1}, {"n": 2})
    assert inputs["x"] is array


def test_strided_input_is_padded_by_its_elements() -> None:
    array = np.arange(12).reshape(3, 4)[:, ::2]
    found = filled(array, ("rows", "columns"), {"rows": 4}, PadSpec(value=-1))
    assert found.tolist() == [[0, 2], [4, 6], [8, 10], [-1, -1]]
    assert found.flags.c_contiguous


def test_what_is_no_tensor_or_is_left_out_passes() -> None:
    sequence = Value(name="list", kind="sequence", dtype="float32", shape=None)
    made = padder([sequence, value("x", "n"), value("optional", "n")])
    given_list = [np.zeros(2), np.zeros(3)]
    found = made.pad({"list": given_list, "x": np.zeros(2)}, {"n": 2}, {"n": 3})
    assert found.inputs["list"] is given_list
    assert list(found.inputs) == ["list", "x"]
    assert (found.given, found.added) == (2, 1)


def test_elements_are_those_of_all_tensors() -> None:
    made = padder([value("x", "n", 3), value("scalar"), value("absent", 2)])
    inputs = {"x": np.zeros((2, 3)), "scalar": np.float32(1), "absent": np.zeros(0)}
    assert made.elements(inputs) == 7


# -- crop


def cropped(array: Any, sizes: Mapping[str, int], *crops: Crop) -> Any:
    made = Padder([], Padding(crops=crops))
    (result,) = made.crop(["y"], [array], sizes)
    return result


@pytest.mark.parametrize(
    ("side", "expected"), [("right", [[0, 1], [4, 5]]), ("left", [[2, 3], [6, 7]])]
)
def test_the_side_that_was_padded_is_cut_off(side: Any, expected: list[list[int]]) -> None:
    found = cropped(
        np.arange(8).reshape(2, 4), {"seq": 2}, Crop(output="y", axis=1, dims=("seq",), side=side)
    )
    assert found.tolist() == expected
    assert found.flags.c_contiguous


def test_several_axes_are_cut_and_the_rest_stays() -> None:
    array = np.arange(60).reshape(3, 4, 5)
    found = cropped(
        array,
        {"batch": 2, "seq": 3},
        Crop(output="y", axis=0, dims=("batch",)),
        Crop(output="y", axis=2, dims=("seq",), side="left"),
    )
    np.testing.assert_array_equal(found, array[:2, :, 2:])
    assert found.flags.c_contiguous
    assert not np.shares_memory(found, array)


def test_sums_of_dims_and_a_constant_are_what_remains() -> None:
    crop = Crop(output="y", axis=0, dims=("past", "seq"), constant=-1)
    assert crop.size({"past": 3, "seq": 2}) == 4
    assert cropped(np.arange(9), {"past": 3, "seq": 2}, crop).tolist() == [0, 1, 2, 3]
    twice = Crop(output="y", axis=0, dims=("seq", "seq"), constant=1)
    assert cropped(np.arange(9), {"seq": 2}, twice).tolist() == [0, 1, 2, 3, 4]


def test_an_output_of_full_size_is_handed_on_uncopied() -> None:
    array = np.arange(4)
    assert cropped(array, {"seq": 4}, Crop(output="y", axis=0, dims=("seq",))) is array
    other = Padder([], None).crop(["y"], [array], {"seq": 2})
    assert other[0] is array


def test_nothing_may_remain() -> None:
    array = np.arange(8).reshape(2, 4)
    for side in ("right", "left"):
        crop = Crop(output="y", axis=1, dims=("past",), side=side)
        assert cropped(array, {"past": 0}, crop).shape == (2, 0)


def test_outputs_are_told_apart_by_name() -> None:
    made = Padder([], Padding(crops=(Crop(output="b", axis=0, dims=("n",)),)))
    first, second, text = np.arange(3), np.arange(3), [np.arange(3)]
    found = made.crop(["a", "b", "c"], [first, second, text], {"n": 1})
    assert found[0] is first
    assert found[1].tolist() == [0]
    assert found[2] is text


# -- there and back


@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    added=st.lists(st.integers(0, 3), min_size=3, max_size=3),
    side=st.sampled_from(["right", "left"]),
)
def test_cropping_what_was_padded_gives_it_back(
    shape: list[int], added: list[int], side: Any
) -> None:
    names = tuple(f"d{axis}" for axis in range(len(shape)))
    sizes = dict(zip(names, shape, strict=True))
    wanted = {name: size + more for (name, size), more in zip(sizes.items(), added, strict=False)}
    crops = tuple(
        Crop(output="y", axis=axis, dims=(name,), side=side) for axis, name in enumerate(names)
    )
    made = padder([value("x", *names)], crops, x=PadSpec(value=-1, side=side))
    array = np.arange(np.prod(shape)).reshape(shape)
    there = made.pad({"x": array}, sizes, wanted)
    full: Any = there.inputs["x"]
    assert full.shape == tuple(wanted.values())
    assert (there.given, there.given + there.added) == (array.size, full.size)
    assert np.count_nonzero(full == -1) == there.added
    (back,) = made.crop(["y"], [full], sizes)
    np.testing.assert_array_equal(back, array)


def test_text_of_a_fixed_width_does_not_cut_the_pad_value() -> None:
    made = Padder(
        [Value(name="words", dtype="string", shape=("n",))],
        Padding(inputs={"words": PadSpec(value="[PAD]")}),
    )
    found = made.pad({"words": np.array(["ab", "c"])}, {"n": 2}, {"n": 4}).inputs["words"]
    assert list(np.asarray(found)) == ["ab", "c", "[PAD]", "[PAD]"]
