"""Attention of groups of queries that read the same keys: none is repeated, no mask is lost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from attention_graphs import LOWEST, check_same, in_order, ops
from model_parts import info
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.passes.fuse_for_cuda import fuse

KEYS, TIMES, WIDTH = 2, 3, 4
HEADS = KEYS * TIMES
HIDDEN, SIDE = HEADS * WIDTH, KEYS * WIDTH
make = helper.make_node
Nodes = Mapping[str, onnx.NodeProto | None]


def repeated(name: str, held: str) -> list[onnx.NodeProto]:
    """Each head of `held` as many times in turn, as exporters write it."""
    return [
        make("Unsqueeze", [held, "two"], [f"{name}5"]),
        make("Expand", [f"{name}5", f"{name} sizes"], [f"{name}6"]),
        make("Reshape", [f"{name}6", f"{name} heads"], [name]),
        make("Shape", [held], [f"{name} batch"], start=0, end=1),
        make("Shape", [held], [f"{name} length"], start=2, end=3),
        make(
            "Concat",
            [f"{name} batch", "keys", "times", f"{name} length", "width"],
            [f"{name} sizes"],
            axis=0,
        ),
        make(
            "Concat", [f"{name} batch", "all", f"{name} length", "width"], [f"{name} heads"], axis=0
        ),
    ]


USUAL: dict[str, onnx.NodeProto | None] = {
    node.output[0]: node
    for node in (
        make("MatMul", ["x", "wq"], ["q1"]),
        make("Reshape", ["q1", "split q"], ["q3"]),
        make("Transpose", ["q3"], ["q"], perm=[0, 2, 1, 3]),
        *(
            node
            for name in "kv"
            for node in (
                make("MatMul", ["x", f"w{name}"], [f"{name}1"]),
                make("Reshape", [f"{name}1", "split"], [f"{name}3"]),
                make("Transpose", [f"{name}3"], [f"{name}4"], perm=[0, 2, 1, 3]),
                make("Concat", [f"past {name}", f"{name}4"], [f"present {name}"], axis=2),
                *repeated(name, f"present {name}"),
            )
        ),
        make("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        make("MatMul", ["q", "kt"], ["s0"]),
        make("Mul", ["s0", "scale"], ["s"]),
        make("Add", ["s", "bias"], ["m"]),
        make("Where", ["mask", "none", "lowest"], ["bias"]),
        make("Softmax", ["m"], ["p"], axis=-1),
        make("MatMul", ["p", "v"], ["a"]),
        make("Transpose", ["a"], ["t"], perm=[0, 2, 1, 3]),
        make("Reshape", ["t", "join"], ["y"]),
    )
}


def graph(
    changed: Nodes | None = None,
    *,
    mask: list[Any] | None = None,
    opset: int = 18,
    past: bool = True,
    **constants: Any,
) -> onnx.ModelProto:
    """Grouped attention over a past, with a mask of any kind."""
    nodes = {**USUAL, **(changed or {})}
    rng = np.random.default_rng(3)
    held: dict[str, Any] = {
        name: rng.standard_normal((HIDDEN, width)).astype(np.float32)
        for name, width in (("wq", HIDDEN), ("wk", SIDE), ("wv", SIDE))
    }
    held |= {
        "split q": np.array([0, 0, HEADS, WIDTH]),
        "split": np.array([0, 0, KEYS, WIDTH]),
        "join": np.array([0, 0, HIDDEN]),
        "one": np.array([1]),
        "two": np.array([2]),
        "keys": np.array([KEYS]),
        "times": np.array([TIMES]),
        "all": np.array([HEADS]),
        "width": np.array([WIDTH]),
        "scale": np.float32(0.4),
        "none": np.float32(0),
        "lowest": np.float32(LOWEST),
    }
    inputs = [info("x", ["batch", "length", HIDDEN])]
    inputs += [info("mask", mask or ["batch", 1, "length", "total"], TensorProto.BOOL)]
    outputs = [info("y", ["batch", "length", HIDDEN])]
    if past:
        inputs += [info(f"past {name}", ["batch", KEYS, "past", WIDTH]) for name in "kv"]
        outputs += [info(f"present {name}", ["batch", KEYS, "total", WIDTH]) for name in "kv"]
    else:
        nodes |= {
            f"present {name}": make("Identity", [f"{name}4"], [f"present {name}"]) for name in "kv"
        }
    held |= constants
    names = {value.name for value in inputs} | set(held)
    return helper.make_model(
        helper.make_graph(
            in_order(nodes.values(), names),
            "grouped",
            inputs,
            outputs,
            [numpy_helper.from_array(np.asarray(item), name) for name, item in held.items()],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=10,
    )


MASKS = ("causal", "padded before", "padded behind", "nothing", "any")


def masked(kind: str, batch: int, length: int, past: int) -> Any:
    """Which positions each query reads, of (batch, 1, queries, keys)."""
    total = length + past
    keep = np.ones((batch, 1, length, total), bool)
    keep &= np.arange(total) <= np.arange(length)[:, None] + past
    if kind == "padded before":
        keep[0, :, :, : total // 2] = False
    elif kind == "padded behind":
        keep[0, :, :, total - total // 2 :] = False
    elif kind == "nothing":
        keep[0] = False
    elif kind == "any":
        keep = np.random.default_rng(8).integers(0, 2, keep.shape).astype(bool)
    return keep


def check(
    model: onnx.ModelProto, fused: onnx.ModelProto, of_mask: Any = slice(None), past: bool = True
) -> None:
    rng = np.random.default_rng(5)
    for batch, length, before in ((1, 1, 0), (1, 5, 4), (3, 1, 4), (3, 5, 0), (3, 5, 4)):
        if not past and before:
            continue
        given = {"x": rng.standard_normal((batch, length, HIDDEN)).astype(np.float32)}
        if past:
            shape = (batch, KEYS, before, WIDTH)
            for name in "kv":
                given[f"past {name}"] = rng.standard_normal(shape).astype(np.float32)
        for kind in MASKS:
            mask = masked(kind, batch, length, before)[of_mask]
            check_same(model, fused, **given, mask=mask)


def attention(model: onnx.ModelProto) -> onnx.NodeProto:
    (node,) = [node for node in model.graph.node if node.op_type == "MultiHeadAttention"]
    return node


def is_grouped(model: onnx.ModelProto) -> bool:
    (heads,) = [item.i for item in attention(model).attribute if item.name == "num_heads"]
    return bool(heads == KEYS)


@pytest.mark.parametrize("past", [True, False])
def test_keys_of_a_group_are_not_repeated(past: bool) -> None:
    mask = None if past else ["batch", 1, "length", "length"]
    model = graph(past=past, mask=mask)
    fused, records = fuse(model, Path())
    assert is_grouped(fused) and "Expand" not in ops(fused)
    (matched,) = [one.matched for one in records if one.name == "fuse-attention"]
    assert matched == {"decomposed": 1, "grouped": 1}
    if past:
        assert list(attention(fused).input[1:3]) == ["present k", "present v"]
    else:
        assert "Transpose" not in [
            node.op_type
            for node in fused.graph.node
            if node.output[0] in attention(fused).input[1:3]
        ]
    check(model, fused, past=past)


SHAPES: dict[str, tuple[list[Any], Any]] = {
    "of all": ([1, 1, "length", "total"], np.s_[:1]),
    "without heads": (["length", "total"], np.s_[0, 0]),
    "of keys": (["batch", 1, 1, "total"], np.s_[:, :, :1]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_masks_of_every_shape_hold_for_all_heads(name: str) -> None:
    shape, of_mask = SHAPES[name]
    model = graph(mask=shape)
    fused, _ = fuse(model, Path())
    assert is_grouped(fused)
    check(model, fused, of_mask)


def test_scores_are_chosen_by_a_mask() -> None:
    model = graph({"bias": None, "m": make("Where", ["mask", "s", "lowest"], ["m"])})
    fused, _ = fuse(model, Path())
    assert is_grouped(fused)
    check(model, fused)


def test_a_mask_of_each_head_leaves_keys_repeated() -> None:
    """Its heads are of a group's queries, which are rows of one head."""
    each = np.linspace(-1, 1, HEADS, dtype=np.float32).reshape(1, HEADS, 1, 1)
    model = graph(
        {
            "bias": make("Where", ["mask", "none", "lowest"], ["bias0"]),
            "of heads": make("Add", ["bias0", "each"], ["bias"]),
        },
        each=each,
    )
    fused, _ = fuse(model, Path())
    assert not is_grouped(fused)
    check(model, fused)


SPREAD: dict[str, Nodes] = {
    # Heads in turn, instead of each some times: another query reads them.
    "all heads, again and again": {
        f"{name}{step}": node
        for name in "kv"
        for step, node in (
            ("5", make("Unsqueeze", [f"present {name}", "one"], [f"{name}5"])),
            ("6", make("Tile", [f"{name}5", "again"], [f"{name}6"])),
        )
    },
    "keys alone": {
        "v6": None,
        "v5": None,
        "v": make("Concat", ["present v"] * TIMES, ["v"], axis=1),
    },
}


@pytest.mark.parametrize("name", SPREAD)
def test_heads_in_another_order_are_left(name: str) -> None:
    model = graph(SPREAD[name], again=np.array([1, TIMES, 1, 1, 1]))
    fused, _ = fuse(model, Path())
    assert "MultiHeadAttention" not in ops(fused) or not is_grouped(fused)
    check(model, fused)


STANDARD: Nodes = {
    **dict.fromkeys(("kt", "s0", "s", "m", "bias", "p")),
    **{f"{name}{step}": None for name in "kv" for step in ("5", "6", "")},
    "a": make("Attention", ["q", "present k", "present v", "mask"], ["a"], scale=0.4),
}


def test_the_standard_operator_with_fewer_heads_of_keys() -> None:
    model = graph(STANDARD, opset=23)
    fused, records = fuse(model, Path())
    assert is_grouped(fused)
    (matched,) = [one.matched for one in records if one.name == "fuse-attention"]
    assert matched == {"standard": 1, "grouped": 1}
    check(model, fused)


def test_the_standard_operator_with_fewer_heads_stays_if_it_is_causal() -> None:
    """The rows of a group have a diagonal each, and the fused operator has one."""
    nodes = {**STANDARD, "a": make("Attention", ["q", "k4", "v4"], ["a"], is_causal=1)}
    model = graph(nodes, opset=23)
    fused, _ = fuse(model, Path())
    assert "Attention" in ops(fused) and "MultiHeadAttention" not in ops(fused)
    check(model, fused)
