"""Masks of attentions that are fused for CUDA: which may be, and the same answers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from attention_graphs import (
    BOOLEANS,
    CONDITION,
    LOWEST,
    ROOT,
    WIDTH,
    attention,
    check_same,
    decomposed,
    ops,
    opset,
    tokens,
)
from model_parts import info
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.passes.fuse_for_cuda import fuse


@pytest.mark.parametrize("kept", [0, 1])
def test_scores_chosen_by_a_mask(kept: int) -> None:
    names = ["s", "lowest"] if kept == 0 else ["lowest", "s"]
    core = decomposed(helper.make_node("Where", ["c", *names], ["m"]))
    condition = info("c", ["b", 1, "length", "length"], TensorProto.BOOL)
    model = attention(
        [condition], core, root=np.float32(math.sqrt(WIDTH)), lowest=np.float32(LOWEST)
    )
    fused, records = fuse(model, Path())
    assert {"fuse-attention", "pack-attention"} <= {item.name for item in records}
    for mask in BOOLEANS.values():
        check_same(model, fused, x=tokens(), c=mask)


def test_masks_of_infinity_are_left() -> None:
    """A row that is all -inf is not a number, and kernels differ in what they make of it."""
    core = decomposed(helper.make_node("Where", ["c", "s", "lowest"], ["m"]))
    condition = info("c", ["b", 1, "length", "length"], TensorProto.BOOL)
    model = attention([condition], core, root=np.float32(2), lowest=np.float32("-inf"))
    assert fuse(model, Path())[1] == ()


def guarded(*masked: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Attention whose probabilities that are not a number become 0."""
    *before, softmax, product = decomposed(*masked)
    return [
        *before,
        helper.make_node("Softmax", softmax.input, ["p0"], axis=-1),
        helper.make_node("IsNaN", ["p0"], ["n"]),
        helper.make_node("Where", ["n", "zero", "p0"], ["p"]),
        product,
    ]


def far(model: onnx.ModelProto, steps: int) -> onnx.ModelProto:
    """The constant "f" of `model` is that far from the scores it is added to."""
    for node in model.graph.node:
        if "f" in node.input:
            node.input[list(node.input).index("f")] = f"f{steps}"
    chain = [
        helper.make_node("Mul", [f"f{step}" if step else "f", "x1"], [f"f{step + 1}"])
        for step in range(steps)
    ]
    for node in reversed(chain):
        model.graph.node.insert(0, node)
    model.graph.input.append(info("x1", [1]))
    return model


MASKED: dict[str, Any] = {
    "large": np.where(np.arange(80) < 40, -np.inf, 0)[:, None].repeat(80, 1),
    "small": np.array([[0, -np.inf, 0], [-np.inf] * 3, [0, 0, 0]]),
}


@pytest.mark.parametrize("name", MASKED)
def test_a_guard_stays_if_a_constant_of_any_size_masks_all(name: str) -> None:
    added = MASKED[name].astype(np.float32)[None, None]
    core = guarded(helper.make_node("Add", ["s", "f"], ["m"]))
    model = attention([], core, **ROOT, f=added, zero=np.float32(0))
    fused, _ = fuse(model, Path())
    assert "Softmax" in ops(fused)
    check_same(model, fused, x=tokens(length=added.shape[-1]))


def test_a_guard_stays_if_the_mask_is_an_input() -> None:
    core = guarded(helper.make_node("Add", ["s", "f"], ["m"]))
    masks = [info("f", [1, 1, "length", "length"])]
    model = attention(masks, core, **ROOT, zero=np.float32(0))
    fused, _ = fuse(model, Path())
    assert "Softmax" in ops(fused)
    check_same(model, fused, x=tokens(), f=MASKED["small"].astype(np.float32)[None, None])
    plain = attention(masks, decomposed(helper.make_node("Add", ["s", "f"], ["m"])), **ROOT)
    assert "Softmax" not in ops(fuse(plain, Path())[0])


def test_masks_of_infinity_are_left_however_far_and_large_they_are() -> None:
    core = decomposed(helper.make_node("Add", ["s", "f"], ["m"]))
    added = MASKED["large"].astype(np.float32)[None, None]
    model = far(attention([], core, **ROOT, f=added), 50)
    assert "Softmax" in ops(fuse(model, Path())[0])


def test_two_finite_masks_may_be_infinite_together() -> None:
    masked = [
        helper.make_node("Add", ["s", "f"], ["m0"]),
        helper.make_node("Add", ["m0", "g"], ["m"]),
    ]
    for lowest, found in ((LOWEST, False), (-1e9, True)):
        both = {name: np.full((3, 3), lowest, np.float32) for name in "fg"}
        model = attention([], guarded(*masked), **ROOT, zero=np.float32(0), **both)
        fused, _ = fuse(model, Path())
        assert ("Softmax" not in ops(fused)) == found
        check_same(model, fused, x=tokens())


# Nodes that make the mask "f" of the condition "c", which is finite.
FINITE = {
    "chosen": [helper.make_node("Where", ["c", "zero", "lowest"], ["f"])],
    "times": [
        helper.make_node("Cast", ["c"], ["f0"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["one", "f0"], ["f1"]),
        helper.make_node("Mul", ["f1", "lowest"], ["f"]),
    ],
    "negated": [
        helper.make_node("Cast", ["c"], ["f0"], to=TensorProto.FLOAT),
        helper.make_node("Neg", ["f0"], ["f"]),
    ],
}


@pytest.mark.parametrize("name", FINITE)
def test_a_guard_goes_if_the_mask_is_finite(name: str) -> None:
    core = guarded(*FINITE[name], helper.make_node("Add", ["s", "f"], ["m"]))
    zero, one, lowest = (np.float32(number) for number in (0, 1, LOWEST))
    model = attention([CONDITION], core, **ROOT, zero=zero, one=one, lowest=lowest)
    fused, records = fuse(model, Path())
    assert records and "Softmax" not in ops(fused)
    for mask in BOOLEANS.values():
        check_same(model, fused, x=tokens(), c=mask)


@pytest.mark.parametrize("outer", ["Add", "Where"])
def test_two_masks_are_not_lower_than_one(outer: str) -> None:
    """Rows of which nothing is kept are a mean, and not lost in infinity."""
    masked = [
        helper.make_node("Where", ["c", "s", "lowest"], ["m0"]),
        helper.make_node("Add", ["m0", "f"], ["m"])
        if outer == "Add"
        else helper.make_node("Where", ["d", "m0", "lowest"], ["m"]),
    ]
    other = info("d", ["b", 1, "length", "length"], TensorProto.BOOL)
    factors = info("f", ["length", "length"])
    model = attention(
        [CONDITION, other, factors], decomposed(*masked), **ROOT, lowest=np.float32(LOWEST)
    )
    fused, records = fuse(model, Path())
    assert records
    given = {"f": np.random.default_rng(2).standard_normal((3, 3)).astype(np.float32)}
    for mask in BOOLEANS.values():
        given |= {"c": mask, "d": BOOLEANS["padded"]}
        check_same(model, fused, x=tokens(), **given)


@pytest.mark.parametrize("version", [12, 14, 15])
def test_masks_are_spread_at_every_opset(version: int) -> None:
    core = decomposed(helper.make_node("Add", ["s", "f"], ["m"]))
    model = opset(attention([info("f", [1, "length"])], core, **ROOT), version)
    fused, records = fuse(model, Path())
    assert "Softmax" not in ops(fused) and records
    check_same(model, fused, x=tokens(), f=np.array([[0, LOWEST, 1]], np.float32))


@pytest.mark.parametrize("way", ["chosen", "added", "standard"])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_the_lowest_number_of_a_mask_is_finite_in_half(kind: int, way: str) -> None:
    """Scores and mask are float32 with float32's lowest number, all else is half."""
    condition, core = CONDITION, in_float(kind, helper.make_node("Where", CHOSEN, ["m"]))
    if way == "added":
        condition = info("f", [1, 1, "length", "length"])
        core = in_float(kind, helper.make_node("Add", ["s", "f"], ["m"]))
    elif way == "standard":
        core = [helper.make_node("Attention", ["q", "k", "v", "c"], ["a"])]
    model = attention([condition], core, kind, **ROOT, lowest=np.float32(LOWEST))
    fused, records = fuse(model, Path())
    assert records and "Softmax" not in ops(fused)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    held = [
        numpy_helper.to_array(attribute.t).astype(np.float64)
        for node in fused.graph.node
        for attribute in node.attribute
        if node.op_type == "Constant" and attribute.t.data_type in (kind, TensorProto.FLOAT)
    ]
    held += [
        numpy_helper.to_array(tensor).astype(np.float64)
        for tensor in fused.graph.initializer
        if not tensor.dims
    ]
    far = [item.item() for item in held if item.size == 1 and item.item() < -1000]
    assert far == [float(ml_dtypes.finfo(dtype).min)]


CHOSEN = ["c", "s", "lowest"]


def in_float(kind: int, masked: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Attention whose scores are masked, and probabilities computed, in float32."""
    turn, product, divide, *_ = decomposed()
    cast = helper.make_node("Cast", ["s0"], ["s1"], to=TensorProto.FLOAT)
    divide.input[0] = "s1"
    return [
        turn,
        product,
        cast,
        divide,
        masked,
        helper.make_node("Softmax", ["m"], ["p0"], axis=-1),
        helper.make_node("Cast", ["p0"], ["p"], to=kind),
        helper.make_node("MatMul", ["p", "v"], ["a"]),
    ]
