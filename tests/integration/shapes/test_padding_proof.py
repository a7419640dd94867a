"""Padding is proven at build: if it changes an answer or cannot be compared, it is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bucketed_models import build_bucketed, encoder, model_of, refused, rows, seq
from model_parts import node
from workbench import Workbench

from aotc.spec.shapes import Crop


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench.at(tmp_path)


# -- to a grid


def test_a_grid_is_padded_without_buckets(bench: Workbench) -> None:
    built = build_bucketed(bench, encoder(1), seq("min: 3, max: 32, multiple_of: 8, outside: pad"))
    (variant,) = built.manifest.variants
    assert (variant.name, variant.component, variant.domain) == ("portable", "model", None)
    dim = built.manifest.domain.dims["seq"]
    assert (dim.min, dim.max, dim.multiple_of, dim.pad_from) == (8, 32, 8, 3)
    lengths = {sizes["seq"] for sizes in variant.parity.shapes}
    assert {length for length in lengths if length % 8} <= {3, 4, 5, 6, 7}
    assert variant.parity.padded == sum(bool(s["seq"] % 8) for s in variant.parity.shapes) > 0


def test_padding_to_a_grid_is_compared_above_its_first_step(bench: Workbench) -> None:
    text = seq("min: 8, max: 32, multiple_of: 8, outside: pad")
    assert refused(bench, rows("mean"), text).code == "AOTC-N007"


# -- padding that is impossible


def test_padding_that_changes_an_answer_is_refused(bench: Workbench) -> None:
    error = refused(bench, rows("each", "mean"), seq("buckets: [8, 16], outside: pad"))
    assert (error.code, error.exit_status) == ("AOTC-N007", 1)
    assert error.what == "output 'mean' differs at batch=2, seq=1, padded to seq=8"
    assert error.where == "variant portable.seq8, fixture padded0"
    assert {one.what.split(" differs")[0] for one in (error, *error.also)} == {"output 'mean'"}


def test_the_same_model_is_built_if_nothing_is_padded(bench: Workbench) -> None:
    built = build_bucketed(bench, rows("each", "mean"), seq("buckets: [8, 16]"))
    assert [variant.parity.padded for variant in built.manifest.variants] == [0, 0]


def test_an_output_whose_size_is_not_a_sum_is_refused(bench: Workbench) -> None:
    error = refused(bench, rows("pairs"), seq("buckets: [8, 16], outside: pad"))
    assert (error.code, error.exit_status) == ("AOTC-S018", 3)
    assert error.where == "output pairs, axis 0"
    assert build_bucketed(bench, rows("pairs"), seq("buckets: [8, 16]")).manifest.padding is None


def test_sizes_that_run_only_at_buckets_are_refused(bench: Workbench) -> None:
    sevens = model_of(
        [node("Reshape", "x rows", "r"), node("Reshape", "r flat", "y")],
        {"x": ["n"]},
        {"y": ["n"]},
        {"rows": np.array([-1, 7]), "flat": np.array([-1])},
    )
    error = refused(bench, sevens, "dims: {n: {buckets: [7, 14], outside: pad}}")
    assert (error.code, error.exit_status) == ("AOTC-S019", 3)
    assert error.where == "variant portable.n7"
    assert error.expected == "a size between n=1 and n=7"
    built = build_bucketed(bench, sevens, "dims: {n: {buckets: [14], min: 7, outside: pad}}")
    # With values of both signs, and of one.
    shapes = [dict(sizes) for sizes in built.manifest.variants[0].parity.shapes]
    assert shapes == [{"n": 14}, *[{"n": 7}] * 3]


@pytest.mark.parametrize("reduction", ["ReduceMax", "ReduceMin"])
def test_padding_under_an_extreme_is_found_with_inputs_of_one_sign(
    bench: Workbench, reduction: str
) -> None:
    """Zeros among values of both signs are seldom the maximum or the minimum."""
    pooled = model_of(
        [node(reduction, "x", "y", axes=[1], keepdims=0)],
        {"x": [1, "n", 1]},
        {"y": [1, 1]},
        {},
    )
    error = refused(bench, pooled, "dims: {n: {buckets: [16, 64], outside: pad, min: 4}}")
    assert error.code == "AOTC-N007"


def test_a_pad_value_of_another_type_is_refused(bench: Workbench) -> None:
    text = "inputs: {ids: {pad: {value: 0.5}}}\n" + seq("buckets: [8], outside: pad")
    error = refused(bench, encoder(1), text)
    assert (error.code, error.exit_status) == ("AOTC-S002", 3)
    assert (error.where, error.expected, error.found) == ("inputs.ids.pad.value", "int64", "0.5")


def test_a_stated_crop_goes_before_what_runs_show(bench: Workbench) -> None:
    text = seq("buckets: [8, 16], outside: pad")
    plain = build_bucketed(bench, rows("each"), text)
    (found,) = plain.manifest.padding.crops if plain.manifest.padding else ()
    assert found == Crop(output="each", axis=1, dims=("seq",))
    shutil.rmtree(plain.path)
    error = refused(bench, rows("each"), "outputs: {each: {crop: {}}}\n" + text)
    assert error.code == "AOTC-N007"
    assert error.found == "expected float32[2, 1, 8], found float32[2, 8, 8]"


@pytest.mark.parametrize("side", ["right", "left"])
def test_inputs_are_padded_on_the_stated_side(bench: Workbench, side: Any) -> None:
    """Cumulative sums: padding on the left with 5 changes them, with 0 it does not."""
    model = model_of(
        [node("CumSum", "x one", "y")],
        {"x": ["batch", "seq"]},
        {"y": ["batch", "seq"]},
        {"one": np.array(1)},
    )
    text = "inputs: {x: {pad: {value: %s, side: " + side + "}}}\n"
    text += seq("buckets: [8], outside: pad")
    if side == "left":
        assert refused(bench, model, text % 5).code == "AOTC-N007"
    built = build_bucketed(bench, model, text % (0 if side == "left" else 5))
    assert built.manifest.padding is not None
    assert built.manifest.padding.crops == (Crop(output="y", axis=1, dims=("seq",), side=side),)
    assert built.manifest.variants[0].parity.padded > 0
