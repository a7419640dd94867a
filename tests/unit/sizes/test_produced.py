"""How output sizes follow from dims, derived from runs; and the padding planned from it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from graph_values import value
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from aotc.sizes.output_shapes import (
    Axis,
    ObservedRun,
    axes_of,
    padded_dims,
    plan_padding,
    value_shapes,
)
from aotc.spec.payload import Value
from aotc.spec.shapes import Crop, Dim, Domain, PadSpec, Relation

Sizes = Mapping[str, int]


ANY = Value(name="y", dtype="float32", shape=None)


def runs_of(
    shape: Callable[[Sizes], tuple[int, ...] | None], **dims: Sequence[int]
) -> list[ObservedRun]:
    """A run at every combination of sizes."""
    runs = []
    for sizes in itertools.product(*dims.values()):
        at = dict(zip(dims, sizes, strict=True))
        runs.append(ObservedRun(at, (shape(at),)))
    return runs


def fitted(
    shape: Callable[[Sizes], tuple[int, ...] | None], declared: Value = ANY, **dims: Sequence[int]
) -> list[int | str] | None:
    """The rules of all axes, as text."""
    axes = axes_of(0, declared, runs_of(shape, **dims), tuple(dims))
    if axes is None:
        return None
    return ["?" if rule is None else rule.text() for rule in axes]


# -- rules


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (lambda s: s["seq"], "seq"),
        (lambda s: s["past"], "past"),
        (lambda s: 7, 7),
        (lambda s: 0, 0),
        (lambda s: s["past"] + s["seq"], "past + seq"),
        (lambda s: s["seq"] + 2, "seq + 2"),
        (lambda s: s["seq"] - 1, "seq - 1"),
        (lambda s: s["past"] + s["seq"] + 5, "past + seq + 5"),
        (lambda s: s["past"] + s["seq"] - 1, "past + seq - 1"),
        (lambda s: 2 * s["seq"], "2*seq"),
        (lambda s: 3 * s["seq"], "3*seq"),
        (lambda s: 16 * s["seq"], "16*seq"),
        (lambda s: 2 * s["seq"] + 1, "2*seq + 1"),
        (lambda s: 2 * s["seq"] - 1, "2*seq - 1"),
        (lambda s: s["seq"] // 2, "floor(seq/2)"),
        (lambda s: -(-s["seq"] // 4), "ceil(seq/4)"),
        (lambda s: s["past"] * s["seq"], "past*seq"),
        (lambda s: (s["past"] // 2) * (s["seq"] // 2), "floor(past/2)*floor(seq/2)"),
        (lambda s: s["seq"] * s["seq"], "?"),
        (lambda s: max(s["seq"], 5), "?"),
        (lambda s: s["seq"] // 5 + 1, "?"),
        (lambda s: 2 * s["seq"] + s["past"], "?"),
    ],
)
def test_an_axis_is_told_by_the_runs(size: Callable[[Sizes], int], text: int | str) -> None:
    rules = fitted(lambda s: (size(s), 3), past=[1, 2, 9], seq=[3, 8, 17])
    assert rules == [text, 3]


def test_an_output_without_axes_has_no_rules() -> None:
    assert fitted(lambda s: (), seq=[1, 2]) == []


def test_no_rule_where_the_rank_changes_or_it_is_no_tensor() -> None:
    assert fitted(lambda s: (2,) * s["seq"], seq=[1, 2]) is None
    assert fitted(lambda s: None, seq=[1, 2]) is None
    assert fitted(lambda s: None if s["seq"] == 1 else (2,), seq=[1, 2]) is None


def test_a_constant_is_told_only_from_sizes_that_varied() -> None:
    """One run alone shows the sizes that it had; of dims that never move nothing can be told."""
    assert fitted(lambda s: (4,), seq=[4]) == [4]
    assert fitted(lambda s: (4,), seq=[4, 5]) == [4]
    assert fitted(lambda s: (4, 6)) == [4, 6]


def test_dims_of_equal_size_in_all_runs_are_told_apart_by_the_declared_name() -> None:
    together = [ObservedRun({"a": n, "b": n}, ((n,),)) for n in (2, 3, 7)]
    for name in ("a", "b"):
        (rule,) = axes_of(0, value("y", name), together, ("a", "b")) or ()
        assert rule == Axis((name,))
    (rule,) = axes_of(0, ANY, together, ("a", "b")) or ()
    assert rule == Axis(("a",))


def test_a_declared_name_that_does_not_hold_is_not_believed() -> None:
    assert fitted(lambda s: (s["a"],), value("y", "b"), a=[1, 4], b=[2, 3]) == ["a"]
    assert fitted(lambda s: (s["a"],), value("y", "b", 2), a=[1, 4], b=[2, 3]) == ["a"]


def test_the_simplest_of_several_rules_is_taken() -> None:
    # Of one run at b=0 a sum and a dim alone look alike; a second tells.
    assert fitted(lambda s: (s["a"],), a=[1, 4], b=[0]) == ["a"]
    assert fitted(lambda s: (s["a"] + s["b"],), a=[1, 4], b=[0, 2]) == ["a + b"]


def test_a_run_of_another_rule_ends_a_rule() -> None:
    runs = [*runs_of(lambda s: (s["n"],), n=[1, 2, 3]), ObservedRun({"n": 9}, ((8,),))]
    assert axes_of(0, ANY, runs, ("n",)) == (None,)


def test_outputs_are_told_apart() -> None:
    runs = [ObservedRun({"n": n}, ((n,), None, (2, n + 1))) for n in (1, 5)]
    assert axes_of(0, ANY, runs, ("n",)) == (Axis(("n",)),)
    assert axes_of(1, ANY, runs, ("n",)) is None
    assert axes_of(2, ANY, runs, ("n",)) == (Axis(constant=2), Axis(("n",), 1))


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=6, unique=True
    ),
    st.lists(st.integers(0, 60), min_size=6, max_size=6),
)
def test_a_rule_fits_every_run_that_it_was_told_from(
    sizes: list[tuple[int, int]], produced: list[int]
) -> None:
    runs = [
        ObservedRun({"a": a, "b": b}, ((size,),))
        for (a, b), size in zip(sizes, produced, strict=False)
    ]
    (rule,) = axes_of(0, ANY, runs, ("a", "b")) or (None,)
    for run in runs:
        assert rule is None or rule.matches(run.sizes, (run.shapes[0] or ())[0])


def test_only_sums_of_a_dim_can_be_cut() -> None:
    assert Axis(("past", "seq"), 3).is_croppable({"seq"})
    assert Axis(constant=3).is_croppable({"seq"})
    assert Axis(("height",), by=2, rounded="floor").is_croppable({"seq"})
    assert not Axis(("seq",), by=2, rounded="floor").is_croppable({"seq"})
    assert not Axis(("past", "seq"), rounded="ceil").is_croppable({"seq"})


def test_shapes_stand_side_by_side() -> None:
    outputs = [value("y", "batch", "n"), value("z", "m")]
    axes = [(Axis(("batch",)), None), None]
    first, second = value_shapes(outputs, axes, {"y": ("batch", "?")})
    assert (first.name, first.declared, first.inferred) == ("y", ("batch", "n"), ("batch", "?"))
    assert first.produced == ("batch", "?")
    assert (second.declared, second.inferred, second.produced) == (("m",), None, None)


# -- the plan

SEQ = Dim(min=32, max=64, opt=32, buckets=(32, 64), outside=("pad",), pad_from=1, origin="stated")
BATCH = Dim(min=1, max=8, opt=1, origin="stated")
DOMAIN = Domain(
    dims={"batch": BATCH, "seq": SEQ, "past": BATCH},
    relations=(
        Relation(dim="total", terms=("past", "seq")),
        Relation(dim="rows", terms=("batch",)),
    ),
)
IDS = value("ids", "batch", "seq", dtype="int64")
MASK = value("mask", "batch", "total", dtype="bool")
SCALE = value("scale", "batch")
LOGITS = value("logits", "batch", "seq", 5)
PAST = value("present", "batch", "total")
BY_SEQ = (Axis(("batch",)), Axis(("seq",)), Axis(constant=5))
BY_TOTAL = (Axis(("batch",)), Axis(("past", "seq")))


def plan(
    axes: Sequence[tuple[Axis | None, ...] | None] = (BY_SEQ,),
    outputs: Sequence[Value] = (LOGITS,),
    *,
    inputs: Sequence[Value] = (IDS, MASK, SCALE),
    pads: Mapping[str, PadSpec] | None = None,
    crops: Mapping[str, Mapping[str, str] | None] | None = None,
) -> Any:
    return plan_padding(DOMAIN, inputs, outputs, axes, pads or {}, crops or {})


def refused(**given: Any) -> tuple[str, str, str, str, str]:
    error = refusal(plan, **given)
    return error.code, error.what, error.where, error.expected, error.found


def test_dims_that_padding_enlarges() -> None:
    assert padded_dims(DOMAIN) == {"seq", "total"}


def test_a_chain_of_relations_is_followed() -> None:
    chain = (
        Relation(dim="total", terms=("past", "seq")),
        Relation(dim="grid", terms=("total",), constant=1),
    )
    domain = Domain(dims={"seq": SEQ, "past": BATCH}, relations=chain)
    assert padded_dims(domain) == {"seq", "total", "grid"}


def test_no_plan_where_nothing_is_padded() -> None:
    alone = Domain(dims={"batch": BATCH})
    assert plan_padding(alone, (IDS,), (LOGITS,), (None,), {}, {}) is None


def test_every_input_with_a_padded_dim_is_filled_and_every_axis_cropped() -> None:
    made = plan((BY_SEQ, BY_TOTAL), (LOGITS, PAST))
    assert made.inputs == {"ids": PadSpec(), "mask": PadSpec()}
    assert made.crops == (
        Crop(output="logits", axis=1, dims=("seq",)),
        Crop(output="present", axis=1, dims=("past", "seq")),
    )


def test_a_constant_beside_the_dims_remains() -> None:
    made = plan(((Axis(("seq", "seq"), -1),),), (value("y", "n"),))
    assert made.crops == (Crop(output="y", axis=0, dims=("seq", "seq"), constant=-1),)


def test_axes_of_other_dims_are_left_alone() -> None:
    rounded = Axis(("batch",), by=2, rounded="floor")
    assert plan(((rounded,),), (value("y", "n"),)).crops == ()


def test_a_crop_is_on_the_left_where_every_input_is_padded_there() -> None:
    left = PadSpec(side="left")
    both = plan((BY_SEQ, BY_TOTAL), (LOGITS, PAST), pads={"ids": left, "mask": left})
    assert [crop.side for crop in both.crops] == ["left", "left"]
    one = plan((BY_SEQ, BY_TOTAL), (LOGITS, PAST), pads={"ids": left})
    assert one.crops[0].side == "left"
    made = plan(pads={"mask": left})
    assert made.crops[0].side == "right"
    other = value("types", "batch", "seq", dtype="int64")
    mixed = plan(inputs=(IDS, other), pads={"ids": left})
    assert mixed.crops[0].side == "right"


# -- stated crops


def test_a_stated_crop_goes_before_the_runs() -> None:
    made = plan((None,), crops={"logits": {"1": "seq"}})
    assert made.crops == (Crop(output="logits", axis=1, dims=("seq",)),)


def test_an_empty_crop_leaves_an_output_alone() -> None:
    assert plan((None,), crops={"logits": {}}).crops == ()


def test_a_crop_that_is_not_stated_is_found() -> None:
    assert plan(crops={"logits": None}).crops == plan().crops


def test_a_stated_crop_may_name_a_dim_that_follows() -> None:
    left = {"ids": PadSpec(side="left"), "mask": PadSpec(side="left")}
    made = plan((None,), (PAST,), crops={"present": {"1": "total"}}, pads=left)
    assert made.crops == (Crop(output="present", axis=1, dims=("total",), side="left"),)


@pytest.mark.parametrize(
    ("axis", "dim"),
    [("3", "seq"), ("-1", "seq"), ("one", "seq"), ("\u0661", "seq"), ("", "seq"), ("1", "length")],
)
def test_a_crop_of_what_is_not_there_is_refused(axis: str, dim: str) -> None:
    assert refused(crops={"logits": {axis: dim}}) == (
        "AOTC-S002",
        "the crop names an unknown axis or dim",
        "outputs.logits.crop",
        "an axis below 3: one of batch, past, rows, seq, total",
        f"{axis}: {dim}",
    )


def test_a_crop_of_an_output_of_unknown_rank_is_checked_when_it_runs() -> None:
    error = refused(axes=(None,), outputs=(ANY,), crops={"y": {"1": "length"}})
    assert error[3] == "an axis below its rank: one of batch, past, rows, seq, total"
    made = plan((None,), (ANY,), crops={"y": {"9": "seq"}})
    assert made.crops == (Crop(output="y", axis=9, dims=("seq",)),)


def test_an_unknown_output_is_refused() -> None:
    assert refused(crops={"logit": {"1": "seq"}}) == (
        "AOTC-S002",
        "the model has no output 'logit'",
        "outputs.logit",
        "logits",
        "",
    )


# -- outputs that cannot be cropped


@pytest.mark.parametrize(
    ("rules", "where", "found"),
    [
        (None, "output logits", "not a tensor of fixed rank"),
        ((Axis(("batch",)), None), "output logits, axis 1", "a size that follows no simple rule"),
        (
            (Axis(("seq",), by=2, rounded="floor"),),
            "output logits, axis 0",
            "floor(seq/2)",
        ),
        ((Axis(("batch", "seq"), rounded="floor"),), "output logits, axis 0", "batch*seq"),
    ],
)
def test_what_cannot_be_cropped_is_refused(
    rules: tuple[Axis | None, ...] | None, where: str, found: str
) -> None:
    assert refused(axes=(rules,)) == (
        "AOTC-S018",
        "output 'logits' cannot be cropped",
        where,
        "a size that is a sum of dims",
        found,
    )


# -- pad values


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("int64", 0.5),
        ("int64", 2**63),
        ("int64", float("nan")),
        ("int64", float("inf")),
        ("int64", "0"),
        ("uint8", -1),
        ("uint8", 256),
        ("int8", 128),
        ("bool", 2),
        ("bool", "true"),
        ("float32", "0"),
    ],
)
def test_a_value_of_another_type_is_refused(dtype: str, fill: Any) -> None:
    given = {"inputs": (value("ids", "seq", dtype=dtype),), "pads": {"ids": PadSpec(value=fill)}}
    assert refused(**given) == (
        "AOTC-S002",
        "the pad value is not of the input's type",
        "inputs.ids.pad.value",
        dtype,
        repr(fill),
    )


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("int64", -(2**63)),
        ("int64", 2.0),
        ("uint8", 255),
        ("bool", True),
        ("bool", 0),
        ("float32", 0.1),
        ("float32", float("-inf")),
        ("float16", 65504),
        ("bfloat16", -3.0),
        ("string", "[PAD]"),
    ],
)
def test_a_value_of_the_inputs_type_is_taken(dtype: str, fill: Any) -> None:
    spec = PadSpec(value=fill, side="left")
    made = plan(inputs=(value("ids", "seq", dtype=dtype),), pads={"ids": spec})
    assert made.inputs == {"ids": spec}


def test_text_is_filled_with_nothing_where_nothing_is_said() -> None:
    made = plan(inputs=(value("words", "seq", dtype="string"),))
    assert made.inputs == {"words": PadSpec(value="")}


def test_the_value_of_an_input_that_is_not_padded_is_not_looked_at() -> None:
    assert "scale" not in plan(pads={"scale": PadSpec(value="text")}).inputs
