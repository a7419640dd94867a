"""Branches and trips: which a call could run, what a profile shows, and the values to search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from model_parts import constant, info, model_of, node
from onnx import TensorProto, helper

from aotc.sizes.branches import Branches, Control, Reached, controls_of, reached_by_run
from aotc.sizes.inputs.searched import MAX_TRIED, searched_values
from aotc.spec.payload import Value

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64


def graph(*nodes: onnx.NodeProto, out: str, given: Sequence[Any] = ()) -> onnx.GraphProto:
    return helper.make_graph(nodes, f"of_{out}", given, [info(out, None)])


def choice(condition: str, out: str, name: str) -> onnx.NodeProto:
    return node(
        *("If", condition, out, name),
        then_branch=graph(node("Tanh", "x", f"{name}_t", f"{name}_tanh"), out=f"{name}_t"),
        else_branch=graph(node("Neg", "x", f"{name}_e", f"{name}_neg"), out=f"{name}_e"),
    )


def control(*nodes: onnx.NodeProto, fixed_sizes: bool = False, **constants: Any) -> Control:
    inputs = [info("x", ["n", 4]), info("b", [], BOOL), info("k", [], INT64)]
    tensors = [constant(name, value) for name, value in constants.items()]
    model = model_of(nodes, inputs, [info("y", None)], tensors)
    return controls_of(model, fixed_sizes=fixed_sizes)[0]


def test_a_condition_of_values_names_its_inputs_and_numbers() -> None:
    found = control(
        node("ReduceSum", "x", "s", keepdims=0),
        node("Greater", "s limit", "c"),
        choice("c", "y", "pick"),
        limit=np.float32(1e6),
    )
    assert (found.inputs, found.numbers, found.constant) == (("x",), (1e6,), False)


@pytest.mark.parametrize(("axis", "fixed", "constant"), [(0, 0, 0), (0, 1, 1), (1, 0, 1)])
def test_a_condition_of_sizes_is_constant_if_they_are(
    axis: int, fixed: bool, constant: bool
) -> None:
    found = control(
        node("Shape", "x", "s"),
        node("Gather", "s at", "n"),
        node("Equal", "n limit", "c"),
        choice("c", "y", "pick"),
        fixed_sizes=bool(fixed),
        at=np.array(axis),
        limit=np.array(5),
    )
    assert (found.inputs, found.constant) == ((), bool(constant))
    assert 5.0 in found.numbers


def test_a_rank_is_constant() -> None:
    found = control(
        node("Shape", "x", "s"),
        node("Size", "s", "rank"),
        node("Equal", "rank limit", "c"),
        choice("c", "y", "pick"),
        limit=np.array(3),
    )
    assert found.constant


def loop(trips: str, again: str, *, inner: Sequence[onnx.NodeProto] = ()) -> onnx.NodeProto:
    body = helper.make_graph(
        [node("Add", "sum x", "sum_out", "add"), *inner],
        "body",
        [info("trip", [], INT64), info("go", [], BOOL), info("sum", None)],
        [info(again, [], BOOL), info("sum_out", None)],
    )
    return node("Loop", f"{trips} - x", "y", "loop", body=body)


def test_a_loop_of_a_constant_number_of_trips_is_constant() -> None:
    going = node("Identity", "go", "on", "on")
    assert control(loop("three", "on", inner=[going]), three=np.array(3)).constant
    assert not control(loop("k", "on", inner=[going])).constant
    small = node("ReduceMax", "sum_out", "most", "most", keepdims=0)
    less = node("Less", "most limit", "on", "less")
    assert not control(
        loop("three", "on", inner=[small, less]), three=np.array(3), limit=np.float32(9)
    ).constant


def test_what_a_profile_shows_is_by_run_and_execution() -> None:
    controls = [
        Control(node=f"n{number}", op_type=op, inside=None, inputs=(), numbers=(), constant=False)
        for number, op in enumerate(("If", "Loop"))
    ]

    def event(name: str) -> str:
        return f'{{"cat" : "Node","name" :"{name}_kernel_time","args" : {{}}}},\n'

    end = '{"cat" : "Session","name" :"model_run","args" : {}},\n'
    lines = [
        *(event("aotc:1/body"), event("aotc:1/body"), event("aotc:1")),
        *(event("aotc:0/then_branch"), event("aotc:0"), event("aotc:1"), end),
        *(event("other"), event("aotc:1/body"), event("aotc:1"), end),
        event("aotc:0/else_branch"),
    ]
    assert list(reached_by_run(lines, controls)) == [
        {(1, "many trips"), (1, "0 trips"), (0, "then_branch")},
        {(1, "1 trip")},
    ]


def branches(*controls: Control, **reached: Reached) -> Branches:
    return Branches(controls=controls, reached=reached)


def test_what_is_inside_of_what_did_not_run_is_not_told_again() -> None:
    outer = control(choice("b", "y", "outer"))
    inner = control(choice("b", "y", "inner"))
    inside = Control(
        node=inner.node,
        op_type="If",
        inside=(0, "then_branch"),
        inputs=("b",),
        numbers=(),
        constant=False,
    )
    never = branches(outer, inside, opt=frozenset({(0, "else_branch")}))
    assert never.missing() == [(0, "then_branch")]
    rows = [(row.node, row.path, row.fixtures, row.missing) for row in never.table()]
    assert rows == [
        ("outer", "then_branch", 0, True),
        ("outer", "else_branch", 1, False),
        ("inner", "then_branch", 0, False),
        ("inner", "else_branch", 0, False),
    ]
    both = {"opt": frozenset({(0, "then_branch"), (1, "else_branch")})}
    assert branches(outer, inside, **both).missing() == [(0, "else_branch"), (1, "then_branch")]
    # ONNX Runtime made what has a constant condition part of the graph around it.
    assert branches(outer, inside, opt=frozenset({(0, "then_branch")})).missing() == [
        (0, "else_branch")
    ]


def test_a_loop_lacks_its_body_and_then_its_second_trip() -> None:
    counted = control(loop("k", "on", inner=[node("Identity", "go", "on", "on")]))
    assert branches(counted, opt=frozenset({(0, "0 trips")})).missing() == [(0, "1 trip")]
    assert branches(counted, opt=frozenset({(0, "1 trip")})).missing() == [(0, "many trips")]
    assert branches(counted, opt=frozenset({(0, "many trips")})).missing() == []


def test_values_are_searched_in_order_and_bounded() -> None:
    values = (
        Value(name="x", dtype="float32", shape=("n", 4)),
        Value(name="b", dtype="bool", shape=()),
        Value(name="k", dtype="int64", shape=()),
    )
    base = {
        "x": np.ones((2, 4), np.float32),
        "b": np.array(False),
        "k": np.array(1),
    }

    def found(*names: str) -> list[Any]:
        return list(searched_values(values, base, {"n": 2}, {}, 1, names, (37.0, 1e6)))

    first, second = found("x", "b", "k"), found("x", "b", "k")
    assert 40 < len(first) <= MAX_TRIED
    assert [each.what for each in first] == [each.what for each in second]
    for one, other in zip(first, second, strict=True):
        assert all(np.array_equal(one.inputs[name], other.inputs[name]) for name in base)
        for name, array in base.items():
            assert (one.inputs[name].shape, one.inputs[name].dtype) == (array.shape, array.dtype)
    # What decides nothing keeps its values.
    assert all(np.array_equal(each.inputs["x"], base["x"]) for each in found("b", "k"))
    assert {bool(each.inputs["b"]) for each in found("b")} == {True, False}
    assert {0, 36, 37, 38} <= {int(each.inputs["k"]) for each in found("k")}
    assert max(each.inputs["x"].max() for each in found("x")) > 1e6
    # What is compared for equality, or guards a division, is met.
    throughout = {
        float(each.inputs["x"].flat[0])
        for each in found("x")
        if (each.inputs["x"] == each.inputs["x"].flat[0]).all()
    }
    assert {0.0, 37.0, 1e6} <= throughout
