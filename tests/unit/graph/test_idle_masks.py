"""Masks that change no score, as exporters write for models without padding, are dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from attention_graphs import (
    BOOLEANS,
    CONDITION,
    LOWEST,
    ROOT,
    attention,
    check_same,
    decomposed,
    ops,
    tokens,
)
from onnx import TensorProto, helper

from aotc.graph.passes.fuse_for_cuda import fuse

CHOSEN = [
    helper.make_node("Where", ["k0", "zero", "lowest"], ["f"]),
    helper.make_node("Add", ["s", "f"], ["m"]),
]
SCORES = [helper.make_node("Where", ["k0", "s", "lowest"], ["m"])]
BATCH = [
    helper.make_node("Shape", ["x"], ["b0"], start=0, end=1),
    helper.make_node("Shape", ["x"], ["l0"], start=1, end=2),
    helper.make_node("Concat", ["b0", "one", "l0", "l0"], ["shape"], axis=0),
]
EXPANDED = [*BATCH, helper.make_node("Expand", ["true", "shape"], ["k0"])]
FILLED = [
    *BATCH,
    helper.make_node(
        "ConstantOfShape",
        ["shape"],
        ["k0"],
        value=helper.make_tensor("", TensorProto.BOOL, [1], [1]),
    ),
]
NEGATED = [*BATCH, helper.make_node("Expand", ["false", "shape"], ["n"])]
CONSTANTS: dict[str, Any] = {
    **ROOT,
    "zero": np.float32(0),
    "lowest": np.float32(LOWEST),
    "one": np.array([1]),
    "true": np.ones((1, 1, 1, 1), bool),
    "false": np.zeros((1, 1, 1, 1), bool),
    "some": np.array([1, 0, 1], bool).reshape(1, 1, 1, 3),
    "plane": np.ones((1, 1, 3, 1), bool),
}


def built(core: list[onnx.NodeProto], *, condition: bool = False) -> onnx.ModelProto:
    return attention([CONDITION] if condition else [], core, **CONSTANTS)


def check_unmasked(model: onnx.ModelProto, count: int = 1, **given: Any) -> None:
    fused, records = fuse(model, Path())
    (found,) = (item.matched for item in records if item.name == "fuse-attention")
    assert found["idle masks"] == count
    (node,) = (item for item in fused.graph.node if item.op_type == "Attention")
    assert len(node.input) == 3
    assert not {"Where", "Expand", "And", "Not"} & set(ops(fused))
    check_same(model, fused, x=tokens(), **given)


IDLE = {
    "expanded, added": [*EXPANDED, *decomposed(*CHOSEN)],
    "expanded, chosen": [*EXPANDED, *decomposed(*SCORES)],
    "filled": [*FILLED, *decomposed(*CHOSEN)],
    "a constant": decomposed(helper.make_node("Where", ["true", "s", "lowest"], ["m"])),
    "negated": [*NEGATED, helper.make_node("Not", ["n"], ["k0"]), *decomposed(*CHOSEN)],
    "inverted": [
        *NEGATED,
        *decomposed(helper.make_node("Where", ["n", "lowest", "s"], ["m"])),
    ],
    "both": [
        *EXPANDED,
        helper.make_node("And", ["k0", "true"], ["kept"]),
        *decomposed(helper.make_node("Where", ["kept", "s", "lowest"], ["m"])),
    ],
    "standard": [
        *EXPANDED,
        helper.make_node("Attention", ["q", "k", "v", "k0"], ["a"]),
    ],
}


@pytest.mark.parametrize("name", IDLE)
def test_a_mask_of_constants_that_keeps_all_goes(name: str) -> None:
    check_unmasked(built(IDLE[name]))


@pytest.mark.parametrize("lowest", [-np.inf, LOWEST])
def test_what_is_never_chosen_may_be_infinite(lowest: float) -> None:
    model = attention(
        [], [*EXPANDED, *decomposed(*CHOSEN)], **{**CONSTANTS, "lowest": np.float32(lowest)}
    )
    check_unmasked(model)


KEPT = {
    "some": decomposed(helper.make_node("Where", ["some", "s", "lowest"], ["m"])),
    "an input": [
        *EXPANDED,
        helper.make_node("And", ["k0", "c"], ["kept"]),
        *decomposed(helper.make_node("Where", ["kept", "s", "lowest"], ["m"])),
    ],
    "an input's other": [
        *NEGATED,
        helper.make_node("Or", ["n", "c"], ["kept"]),
        *decomposed(helper.make_node("Where", ["kept", "s", "lowest"], ["m"])),
    ],
    "wrong way": [*NEGATED, *decomposed(helper.make_node("Where", ["n", "s", "lowest"], ["m"]))],
}


@pytest.mark.parametrize("name", KEPT)
def test_a_mask_that_may_mask_stays(name: str) -> None:
    reads = any("c" in node.input for node in KEPT[name])
    model = built(KEPT[name], condition=reads)
    fused, records = fuse(model, Path())
    (found,) = (item.matched for item in records if item.name == "fuse-attention")
    assert "idle masks" not in found
    for mask in BOOLEANS.values() if reads else [None]:
        check_same(model, fused, x=tokens(), **({"c": mask} if reads else {}))


def test_a_mask_that_spreads_the_scores_stays() -> None:
    """It keeps all, and gives the scores of one row as many rows as it has."""
    model = built(decomposed(helper.make_node("Where", ["plane", "s", "lowest"], ["m"])))
    found = {name: count for item in fuse(model, Path())[1] for name, count in item.matched.items()}
    assert "idle masks" not in found


def test_booleans_made_from_numbers_are_not_their_numbers() -> None:
    """Every number but 0 is `true`: 0.5 is, and is not between."""
    core = [
        helper.make_node("Cast", ["factors"], ["k0"], to=TensorProto.BOOL),
        *decomposed(helper.make_node("Where", ["k0", "s", "lowest"], ["m"])),
    ]
    factors = np.array([0, 0.5, 2], np.float32).reshape(1, 1, 1, 3)
    model = attention([], core, **CONSTANTS, factors=factors)
    fused, _ = fuse(model, Path())
    check_same(model, fused, x=tokens())


def test_bounds_are_rounded_as_their_type_is() -> None:
    """2**24 + 1 + 1 is 2**24 in float32, so what is added is -2, and not 0."""
    core = [
        *BATCH[:2],
        helper.make_node("Concat", ["b0", "one", "l0", "one"], ["shape"], axis=0),
        *(helper.make_node("Expand", [name, "shape"], [f"{name}s"]) for name in "gnhe"),
        helper.make_node("Add", ["gs", "ns"], ["p1"]),
        helper.make_node("Add", ["p1", "ns"], ["p2"]),
        helper.make_node("Sub", ["p2", "hs"], ["p3"]),
        helper.make_node("Concat", ["p3", "es", "es"], ["f"], axis=3),
        *decomposed(helper.make_node("Add", ["s", "f"], ["m"])),
    ]
    numbers = {"g": 2**24, "n": 1, "h": 2**24 + 2, "e": 0}
    held = {name: np.full((1, 1, 1, 1), number, np.float32) for name, number in numbers.items()}
    model = attention([], core, **ROOT, one=np.array([1]), **held)
    for info in (model.graph.input[0], model.graph.output[0]):
        info.type.tensor_type.shape.dim[1].dim_value = 3
    fused, records = fuse(model, Path())
    assert not any("idle masks" in item.matched for item in records)
    check_same(model, fused, x=tokens())
