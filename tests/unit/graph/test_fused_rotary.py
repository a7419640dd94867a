"""Rotary embeddings fused for CUDA: which are found, what only looks like one, and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from attention_graphs import check_same, in_order, ops
from model_parts import info
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.passes.base import run_passes
from aotc.graph.passes.fuse_for_cuda import fuse
from aotc.graph.passes.on_import import NameNodes
from aotc.providers.cuda import claim_of, uncapturable

HEADS, WIDTH = 2, 8
HALF, HIDDEN = WIDTH // 2, HEADS * WIDTH
ANGLES = (1 / 10 ** np.arange(HALF)).astype(np.float32)
make = helper.make_node
Nodes = Mapping[str, onnx.NodeProto | None]

# Queries as exporters turn them by their positions, by the names of results.
USUAL: dict[str, onnx.NodeProto | None] = {
    node.output[0]: node
    for node in (
        make("Reshape", ["x", "split"], ["q3"]),
        make("Transpose", ["q3"], ["q"], perm=[0, 2, 1, 3]),
        make("Cast", ["p"], ["p1"], to=TensorProto.FLOAT),
        make("Unsqueeze", ["p1", "two"], ["p2"]),
        make("Mul", ["p2", "angles"], ["f"]),
        make("Concat", ["f", "f"], ["ff"], axis=-1),
        make("Cos", ["ff"], ["cos3"]),
        make("Sin", ["ff"], ["sin3"]),
        make("Unsqueeze", ["cos3", "one"], ["cos"]),
        make("Unsqueeze", ["sin3", "one"], ["sin"]),
        make("Slice", ["q", "zero", "half", "three"], ["first"]),
        make("Slice", ["q", "half", "last", "three"], ["second"]),
        make("Neg", ["second"], ["negated"]),
        make("Concat", ["negated", "first"], ["turned"], axis=-1),
        make("Mul", ["q", "cos"], ["by_cos"]),
        make("Mul", ["turned", "sin"], ["by_sin"]),
        make("Add", ["by_cos", "by_sin"], ["r"]),
        make("Transpose", ["r"], ["r3"], perm=[0, 2, 1, 3]),
        make("Reshape", ["r3", "join"], ["y"]),
    )
}
NUMBERS: dict[str, Any] = {
    "split": np.array([0, 0, HEADS, WIDTH]),
    "join": np.array([0, 0, HIDDEN]),
    "zero": np.array([0]),
    "one": np.array([1]),
    "two": np.array([2]),
    "three": np.array([3]),
    "half": np.array([HALF]),
    "last": np.array([2**63 - 1]),
    "angles": ANGLES,
}


def graph(
    changed: Nodes | None = None,
    *,
    positions: str | int = 1,
    opset: int = 18,
    constants: Mapping[str, Any] | None = None,
    outputs: Mapping[str, list[Any]] | None = None,
) -> onnx.ModelProto:
    """The usual graph with some nodes in place of those of the same result, or without them."""
    nodes = {**USUAL, **(changed or {})}
    held = {**NUMBERS, **(constants or {})}
    inputs = [
        info("x", ["batch", "length", HIDDEN]),
        info("p", [positions, "length"], TensorProto.INT64),
    ]
    names = {value.name for value in inputs} | set(held)
    return helper.make_model(
        helper.make_graph(
            in_order(nodes.values(), names),
            "rotary",
            inputs,
            [info("y", ["batch", "length", HIDDEN])]
            + [info(name, shape) for name, shape in (outputs or {}).items()],
            [numpy_helper.from_array(np.asarray(item), name) for name, item in held.items()],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=10,
    )


def check(model: onnx.ModelProto, positions: int | None = None) -> onnx.ModelProto:
    """The fused model, after the same answers at several sizes."""
    fused, _ = fuse(model, Path())
    rng = np.random.default_rng(3)
    for batch, length in ((1, 1), (1, 7), (3, 1), (3, 7)):
        x = rng.standard_normal((batch, length, HIDDEN)).astype(np.float32)
        p = rng.integers(0, 90, (positions or batch, length))
        check_same(model, fused, x=x, p=p)
    return fused


def found(model: onnx.ModelProto) -> dict[str, int]:
    records = fuse(model, Path())[1]
    return next((dict(one.matched) for one in records if one.name == "fuse-rotary"), {})


FOUND: dict[str, Nodes] = {
    "usual": {},
    "operands in the other order": {
        "by_cos": make("Mul", ["cos", "q"], ["by_cos"]),
        "by_sin": make("Mul", ["sin", "turned"], ["by_sin"]),
        "r": make("Add", ["by_sin", "by_cos"], ["r"]),
    },
    "halves of one node": {
        "first": make("Split", ["q"], ["first", "second"], axis=3, num_outputs=2),
        "second": None,
    },
    "cosines and sines are scaled": {
        "cos3": make("Cos", ["ff"], ["cos2"]),
        "sin3": make("Sin", ["ff"], ["sin2"]),
        "scaled cos": make("Mul", ["cos2", "factor"], ["cos3"]),
        "scaled sin": make("Div", ["sin2", "factor"], ["sin3"]),
    },
    "cosines and sines are cast": {
        "ff": make("Concat", ["f64", "f64"], ["ff"], axis=-1),
        "f64": make("Cast", ["f"], ["f64"], to=TensorProto.DOUBLE),
        "cos3": make("Cos", ["ff"], ["cos64"]),
        "sin3": make("Sin", ["ff"], ["sin64"]),
        "cast cos": make("Cast", ["cos64"], ["cos3"], to=TensorProto.FLOAT),
        "cast sin": make("Cast", ["sin64"], ["sin3"], to=TensorProto.FLOAT),
    },
    "heads are scaled after they are put first": {
        "q": make("Transpose", ["q3"], ["q4"], perm=[0, 2, 1, 3]),
        "scaled": make("Mul", ["q4", "each"], ["q"]),
    },
}


@pytest.mark.parametrize("positions", [1, "batch"])
@pytest.mark.parametrize("name", FOUND)
def test_rotary_embeddings_are_found(name: str, positions: str | int) -> None:
    each = np.linspace(1, 2, WIDTH, dtype=np.float32)
    constants = {"factor": np.float32(0.7), "each": each}
    model = graph(FOUND[name], positions=positions, constants=constants)
    fused = check(model, None if positions == "batch" else 1)
    assert ops(fused).count("RotaryEmbedding") == 1
    assert "Neg" not in ops(fused)
    assert found(model) == {"decomposed": 1}
    # Shared rows need no positions; those of a batch are counted on.
    assert ("Range" in ops(fused)) == (positions == "batch")


def table(halves: str) -> dict[str, Any]:
    """Constant cosines and sines of 7 positions."""
    angles = np.arange(7)[:, None] * ANGLES
    wide = np.tile(angles, 2) if halves == "equal" else angles.repeat(2, -1)
    return {
        "cos": np.cos(wide).astype(np.float32)[None, None],
        "sin": np.sin(wide).astype(np.float32)[None, None],
    }


def with_table(halves: str) -> onnx.ModelProto:
    model = graph({"cos": None, "sin": None}, constants=table(halves))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[1].dim_value = 7
    return model


@pytest.mark.parametrize("halves", ["equal", "each twice"])
def test_a_table_is_read_if_its_halves_are_equal(halves: str) -> None:
    model = with_table(halves)
    fused, _ = fuse(model, Path())
    assert ("RotaryEmbedding" in ops(fused)) == (halves == "equal")
    rng = np.random.default_rng(3)
    for batch in (1, 3):
        x = rng.standard_normal((batch, 7, HIDDEN)).astype(np.float32)
        check_same(model, fused, x=x, p=np.zeros((1, 7), np.int64))


def test_a_table_of_each_head_is_left() -> None:
    model = with_table("equal")
    for tensor in model.graph.initializer:
        if tensor.name in ("cos", "sin"):
            values = numpy_helper.to_array(tensor)
            each = np.concatenate([values, values / 2], axis=1)
            tensor.CopyFrom(numpy_helper.from_array(each, tensor.name))
    fused, _ = fuse(model, Path())
    assert "RotaryEmbedding" not in ops(fused)


def test_a_table_is_left_if_one_number_differs_by_a_rounding() -> None:
    model = with_table("equal")
    for tensor in model.graph.initializer:
        if tensor.name == "sin":
            values = numpy_helper.to_array(tensor).copy()
            values[0, 0, 3, 1] = np.nextafter(values[0, 0, 3, 1], np.float32(2))
            tensor.CopyFrom(numpy_helper.from_array(values, "sin"))
    assert found(model) == {}


# What is no rotary embedding, or none that the operator has.
LEFT: dict[str, Nodes] = {
    "halves differ": {
        "g": make("Mul", ["p2", "other"], ["g"]),
        "ff": make("Concat", ["f", "g"], ["ff"], axis=-1),
    },
    "each angle stands beside itself": {
        "f1": make("Unsqueeze", ["f", "three"], ["f1"]),
        "f2": make("Concat", ["f1", "f1"], ["f2"], axis=-1),
        "ff": make("Reshape", ["f2", "wide"], ["ff"]),
    },
    "only the sine's halves are equal": {
        "g": make("Mul", ["p2", "other"], ["g"]),
        "fg": make("Concat", ["f", "g"], ["fg"], axis=-1),
        "cos3": make("Cos", ["fg"], ["cos3"]),
    },
    "halves in their order": {
        "turned": make("Concat", ["first", "negated"], ["turned"], axis=-1),
    },
    "the first half is negated": {
        "negated": make("Neg", ["first"], ["negated"]),
        "turned": make("Concat", ["negated", "second"], ["turned"], axis=-1),
    },
    "the second half is no negative": {"negated": make("Abs", ["second"], ["negated"])},
    "nothing is negated": {"turned": make("Concat", ["second", "first"], ["turned"], axis=-1)},
    "halves that overlap": {
        "first": make("Slice", ["q", "one", "five", "three"], ["first"]),
    },
    "halves of the length": {
        "first": make("Slice", ["q", "zero", "half", "three", "one"], ["first"]),
        "second": make("Slice", ["q", "minus", "before", "three", "minus"], ["second"]),
    },
    "a difference": {"r": make("Sub", ["by_cos", "by_sin"], ["r"])},
    "the cosine meets the turned": {
        "by_cos": make("Mul", ["q", "sin"], ["by_cos"]),
        "by_sin": make("Mul", ["q", "cos"], ["by_sin"]),
    },
    "one row for all positions": {
        "p1": make("Cast", ["p0"], ["p1"], to=TensorProto.FLOAT),
        "p0": make("Slice", ["p", "zero", "one", "one"], ["p0"]),
    },
    "rows of each head": {
        "cos": make("Concat", ["cos4", "cos4"], ["cos"], axis=1),
        "cos4": make("Unsqueeze", ["cos3", "one"], ["cos4"]),
    },
}


@pytest.mark.parametrize("name", LEFT)
def test_what_only_looks_like_one_is_left(name: str) -> None:
    constants = {
        "other": ANGLES * 2,
        "wide": np.array([0, 0, WIDTH]),
        "five": np.array([5]),
        "minus": np.array([-1]),
        "before": np.array([3]),
    }
    model = graph(LEFT[name], positions="batch", constants=constants)
    assert "RotaryEmbedding" not in ops(check(model))


def test_positions_of_another_batch_are_left() -> None:
    """They may be one for all, or one for each: the sizes do not say."""
    model = graph(positions="others")
    assert "RotaryEmbedding" not in ops(check(model))
    check(model, 1)


def test_what_else_reads_cosines_reads_the_same() -> None:
    outputs = {"cos3": [1, "length", WIDTH], "turned": ["batch", HEADS, "length", WIDTH]}
    fused = check(graph(outputs=outputs), 1)
    assert "RotaryEmbedding" in ops(fused) and "Neg" in ops(fused)


def part_of_head(changed: Nodes | None = None, **more: Any) -> onnx.ModelProto:
    """The first half of each head is turned."""
    quarter = np.array([HALF // 2])
    nodes: Nodes = {
        "first part": make("Slice", ["q", "zero", "half", "three"], ["part"]),
        "rest": make("Slice", ["q", "half", "last", "three"], ["rest"]),
        "first": make("Slice", ["part", "zero", "quarter", "three"], ["first"]),
        "second": make("Slice", ["part", "quarter", "last", "three"], ["second"]),
        "by_cos": make("Mul", ["part", "cos"], ["by_cos"]),
        "joined": make("Concat", ["r", "rest"], ["rr"], axis=-1),
        "r3": make("Transpose", ["rr"], ["r3"], perm=[0, 2, 1, 3]),
    }
    constants = {"angles": ANGLES[: HALF // 2], "quarter": quarter}
    return graph({**nodes, **(changed or {})}, constants=constants, **more)


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("positions", [1, "batch"])
def test_the_first_part_of_a_head(positions: str | int, split: bool) -> None:
    both = make("Split", ["q"], ["part", "rest"], axis=-1, num_outputs=2)
    changed: Nodes = {"first part": both, "rest": None} if split else {}
    model = part_of_head(changed, positions=positions)
    fused = check(model, None if positions == "batch" else 1)
    (node,) = [node for node in fused.graph.node if node.op_type == "RotaryEmbedding"]
    given = {item.name: item.i for item in node.attribute}
    assert (given["num_heads"], given["rotary_embedding_dim"]) == (HEADS, HALF)
    assert found(model) == {"decomposed": 1, "part of a head": 1}
    assert not {"Slice", "Split", "Neg"} & set(ops(fused))


PARTS: dict[str, Nodes] = {
    "the rest comes first": {"joined": make("Concat", ["rest", "r"], ["rr"], axis=-1)},
    "another rest": {"rest": make("Slice", ["q", "zero", "half", "three"], ["rest"])},
    "the last part": {
        "first part": make("Slice", ["q", "half", "last", "three"], ["part"]),
        "rest": make("Slice", ["q", "zero", "half", "three"], ["rest"]),
    },
}


@pytest.mark.parametrize("name", PARTS)
def test_other_parts_are_fused_by_themselves(name: str) -> None:
    model = part_of_head(PARTS[name])
    fused = check(model, 1)
    assert found(model) == {"decomposed": 1}
    assert "Concat" in ops(fused)


STANDARD: dict[str, tuple[list[str], dict[str, Any]]] = {
    "rows": (["q", "c", "s"], {"num_heads": HEADS}),
    "pairs side by side": (["q", "c", "s"], {"interleaved": 1}),
    "part of a head": (["q", "c", "s"], {"rotary_embedding_dim": HALF}),
    "positions in a table": (["q", "table", "table2", "p"], {}),
}


@pytest.mark.parametrize("name", STANDARD)
def test_the_standard_operator(name: str) -> None:
    inputs, attributes = STANDARD[name]
    angles = ANGLES[: HALF // 2] if "rotary_embedding_dim" in attributes else ANGLES
    rows = np.arange(90)[:, None] * ANGLES
    changed = {
        "cos3": make("Cos", ["f"], ["c"]),
        "sin3": make("Sin", ["f"], ["s"]),
        "r": make("RotaryEmbedding", inputs, ["r"], **attributes),
    }
    gone = ("cos", "sin", "ff", "first", "second", "negated", "turned", "by_cos", "by_sin")
    constants = {
        "angles": angles,
        "table": np.cos(rows).astype(np.float32),
        "table2": np.sin(rows).astype(np.float32),
    }
    model = graph(
        {**changed, **dict.fromkeys(gone)},
        positions="batch",
        opset=23,
        constants=constants,
    )
    fused = check(model)
    (node,) = [node for node in fused.graph.node if node.op_type == "RotaryEmbedding"]
    assert (node.domain, node.input[0]) == ("com.microsoft", "x")
    assert found(model) == {"standard": 1}


@pytest.mark.parametrize("positions", [1, "batch"])
def test_cuda_has_kernels_and_nothing_prevents_a_graph(positions: str | int) -> None:
    fused, _ = fuse(graph(positions=positions), Path())
    run_passes(fused, (NameNodes(),))
    claims = claim_of(fused)
    assert claims.refusals == ()
    placed = dict.fromkeys(claims.nodes, "CUDAExecutionProvider")
    assert uncapturable(fused, placed) == {}
    (node,) = [node for node in fused.graph.node if node.op_type == "RotaryEmbedding"]
    assert placed[node.name] == "CUDAExecutionProvider"
