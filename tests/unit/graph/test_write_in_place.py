"""Caches that are turned around a write are written where they are, with the same values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from model_parts import info
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.passes.base import run_passes
from aotc.graph.passes.with_sizes import WriteInPlace
from aotc.graph.view import shared_buffers

BATCH, HEADS, ROWS, WIDTH, NEW = 2, 3, 7, 4, 2
SHAPE = (BATCH, HEADS, ROWS, WIDTH)


def turned(
    *,
    axis: int = 2,
    kinds: Sequence[str] = ("key", "value"),
    updates_turned: bool = True,
    reduction: str = "none",
    read_again: bool = False,
    column: bool = True,
    back: Sequence[int] = (),
    free: bool = False,
) -> onnx.ModelProto:
    """Each cache is written at `at` by Transpose, ScatterND, Transpose, as torch exports it."""
    order = [axis, *(other for other in range(4) if other != axis)]
    inverse = list(back) or [order.index(at) for at in range(4)]
    shape: list[int | str] = ["batch" if free else BATCH, *SHAPE[1:]]
    new = list(shape)
    new[axis] = "new" if free else NEW
    inputs = [helper.make_tensor_value_info("at", TensorProto.INT64, [new[axis]])]
    nodes, outputs = [], []
    initial = [
        numpy_helper.from_array(np.array([-1], np.int64), "last"),
        numpy_helper.from_array(np.array([0], np.int64), "zero"),
    ]
    if column:
        nodes.append(helper.make_node("Unsqueeze", ["at", "last"], ["indices"], name="column"))
    else:
        # Pairs of indices: more than one axis.
        nodes.append(helper.make_node("Unsqueeze", ["at", "last"], ["one"], name="column"))
        nodes.append(helper.make_node("Concat", ["one", "one"], ["indices"], name="pairs", axis=1))
    for kind in kinds:
        inputs.append(helper.make_tensor_value_info(f"past.{kind}", TensorProto.FLOAT, shape))
        rows = [new[at] for at in order] if not updates_turned else new
        if not column:
            rows = [new[axis], *(shape[at] for at in order[2:])]
        inputs.append(helper.make_tensor_value_info(f"new.{kind}", TensorProto.FLOAT, rows))
        outputs.append(helper.make_tensor_value_info(f"present.{kind}", TensorProto.FLOAT, shape))
        update = f"new.{kind}"
        if updates_turned and column:
            update = f"turned.{kind}"
            nodes.append(
                helper.make_node(
                    "Transpose", [f"new.{kind}"], [update], name=f"update.{kind}", perm=order
                )
            )
        nodes += [
            helper.make_node(
                "Transpose", [f"past.{kind}"], [f"before.{kind}"], name=f"to.{kind}", perm=order
            ),
            helper.make_node(
                "ScatterND",
                [f"before.{kind}", "indices", update],
                [f"after.{kind}"],
                name=f"write.{kind}",
                reduction=reduction,
            ),
            helper.make_node(
                "Transpose",
                [f"after.{kind}"],
                [f"present.{kind}"],
                name=f"from.{kind}",
                perm=inverse,
            ),
        ]
        if read_again:
            nodes.append(
                helper.make_node("Abs", [f"past.{kind}"], [f"again.{kind}"], name=f"abs.{kind}")
            )
            outputs.append(helper.make_tensor_value_info(f"again.{kind}", TensorProto.FLOAT, shape))
    graph = helper.make_graph(nodes, "turned", inputs, outputs, initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def answers(model: onnx.ModelProto, at: Sequence[int]) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(0)
    sizes = {"batch": BATCH, "new": len(at)}
    given = {
        value.name: rng.standard_normal([sizes.get(size, size) for size in value.shape], np.float32)
        for value in session.get_inputs()
        if value.name != "at"
    }
    return list(session.run(None, {**given, "at": np.array(at, np.int64)}))


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("updates_turned", [True, False])
@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
def test_the_same_values_are_written(axis: int, updates_turned: bool, free: bool) -> None:
    model = turned(axis=axis, updates_turned=updates_turned, free=free)
    positions = ([0, 1], [1, 0], [2, 1])
    expected = [answers(model, at) for at in positions]
    assert not shared_buffers(model)
    (record,) = run_passes(model, (WriteInPlace(),))
    onnx.checker.check_model(model)
    assert record.name == "write-in-place"
    assert operators(model).count("ScatterElements") == 2
    assert operators(model).count("Transpose") == (0 if updates_turned else 2)
    # Both write to the same rows: the indices are made once.
    assert operators(model).count("Expand") == 1
    assert shared_buffers(model) == {"past.key": "present.key", "past.value": "present.value"}
    for at, answer in zip(positions, expected, strict=True):
        for one, other in zip(answers(model, at), answer, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "other",
    [
        {"reduction": "add"},
        {"read_again": True},
        {"column": False},
        {"back": (2, 1, 0, 3), "axis": 1},
    ],
    ids=["sum", "read again", "two axes", "turned elsewhere"],
)
def test_other_writes_stay_as_they_are(other: dict[str, Any]) -> None:
    model = turned(**other)
    before = model.SerializeToString()
    assert not WriteInPlace().has_work(model)
    assert model.SerializeToString() == before


def test_a_turned_cache_that_is_an_output_stays_one() -> None:
    model = turned(kinds=("key",))
    model.graph.output.append(info("before.key", [ROWS, BATCH, HEADS, WIDTH]))
    assert not WriteInPlace().has_work(model)


def test_caches_of_other_orders_have_indices_of_their_own() -> None:
    """What is written has equal sizes while it is turned, though the caches differ."""
    model = turned(updates_turned=False)
    other = [HEADS, BATCH, ROWS, WIDTH]
    for value in (*model.graph.input, *model.graph.output):
        if value.name in ("past.value", "present.value"):
            value.CopyFrom(info(value.name, other))
    for node in model.graph.node:
        if node.name in ("to.value", "from.value"):
            node.attribute[0].ints[:] = [2, 1, 0, 3]
    expected = answers(model, [4, 1])
    run_passes(model, (WriteInPlace(),))
    assert operators(model).count("ScatterElements") == 2
    for one, other_one in zip(answers(model, [4, 1]), expected, strict=True):
        np.testing.assert_array_equal(one, other_one)
