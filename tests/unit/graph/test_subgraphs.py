"""Nodes in subgraphs of control flow: their cost, their share, and their transfers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import model_parts
import numpy as np
import onnx
import pytest
from model_parts import info
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.partition.assignment import Assignment, NodeCompute, Rules, Sizes, assign, sizes_at
from aotc.graph.partition.division import partition_report
from aotc.graph.view import GraphView, every_node
from aotc.session.inference import with_types
from aotc.spec.providers import Rates
from aotc.spec.variant import PartitionReport

node = partial(model_parts.node, name="{output}")

FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
DEVICES = {"gpu": "gpu", "cpu": "cpu"}


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def subgraph_of(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[onnx.ValueInfoProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    constants: Sequence[onnx.TensorProto] = (),
) -> onnx.GraphProto:
    return helper.make_graph(nodes, "body", inputs, outputs, constants)


def model_of_x(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    constants: Sequence[onnx.TensorProto] = (),
    inputs: Sequence[onnx.ValueInfoProto] = (),
) -> onnx.ModelProto:
    """A model with inputs `x` (batch x 8) and `c`, a boolean."""
    return model_parts.model_of(
        nodes,
        [info("x", ["batch", 8]), info("c", [], BOOL), *inputs],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        constants,
        opset=18,
        domains=["com.microsoft"],
        ir_version=9,
    )


def heavy(prefix: str) -> onnx.GraphProto:
    """Two products of 8 x 8; all such subgraphs use the same names for inner values."""
    return subgraph_of(
        [
            node("MatMul", ["first", "w"], "m", name=f"{prefix}_one"),
            node("MatMul", ["m", "w"], "out", name=f"{prefix}_two"),
        ],
        [info("out", None)],
    )


def branches() -> onnx.ModelProto:
    """A light node, and an `If` with heavy branches."""
    return model_of_x(
        [
            node("Relu", ["x"], "first"),
            node("If", ["c"], "z", then_branch=heavy("then"), else_branch=heavy("else")),
            node("Neg", ["z"], "y"),
        ],
        ["y"],
        [weight("w", 8, 8)],
    )


def divide(
    model: onnx.ModelProto, on_cpu: set[str], batch: int = 4
) -> tuple[Assignment, PartitionReport]:
    """An assignment of every node to `gpu`, except those named."""
    typed = with_types(model, Path())
    graph = GraphView(typed.graph)
    names = {node.name for node in every_node(typed.graph)}
    assert on_cpu <= names
    claims = [("gpu", frozenset(names - on_cpu)), ("cpu", frozenset(names))]
    found, missing = assign(graph, claims, Rules())
    assert missing == ()
    return found, partition_report(
        graph,
        found,
        (sizes_at(typed, {"batch": batch}), sizes_at(typed, {"batch": 2 * batch})),
        names=[f"part{index}" for index in range(len(found.parts))],
        compiled={},
        devices=DEVICES,
        refusals=(),
        how="observed",
    )


def transfers_of(
    model: onnx.ModelProto, on_cpu: set[str]
) -> list[tuple[str, str, str, int | None]]:
    """Value, from, to, and bytes at a batch of 4: 4 * 4 * 8 is 128."""
    _, found = divide(model, on_cpu)
    return sorted(
        (transfer.value, transfer.source, transfer.target, transfer.bytes)
        for transfer in found.transfers
    )


GIVEN = ("x", "", "gpu", 128)
GIVEN_C = ("c", "", "gpu", 1)
TAKEN = ("y", "gpu", "", 128)


def test_both_branches_cost_and_the_node_that_holds_them_costs_nothing() -> None:
    found = sizes_at(branches(), {"batch": 4})
    product = NodeCompute(flops=2 * 4 * 8 * 8, bytes=4 * (4 * 8 + 8 * 8 + 4 * 8))
    inside = dict.fromkeys(("then_one", "then_two", "else_one", "else_two"), product)
    assert found.nodes == {
        "first": NodeCompute(32, 4 * 64),
        "y": NodeCompute(32, 4 * 64),
        "z": NodeCompute(0, 0),
        **inside,
    }
    assert found.values["m"] == found.values["out"] == 128


def test_a_subgraph_on_another_provider_has_its_share_of_compute() -> None:
    inside = {"then_one", "then_two", "else_one", "else_two"}
    _, found = divide(branches(), inside)
    gpu, cpu = found.providers
    assert (gpu.opt.flops, cpu.opt.flops) == (2 * 32, 4 * 512)
    assert cpu.flops_share == round(2048 / (2048 + 64), 4)
    assert (cpu.nodes, cpu.max.flops, cpu.opt.unknown) == (4, 2 * 2048, 0)


def test_values_of_one_name_in_two_subgraphs_are_two() -> None:
    """The larger size counts for the name, and each node has its own costs."""
    one = subgraph_of(
        [node("Neg", ["x"], "m", name="small"), node("Neg", ["m"], "o")], [info("o", None)]
    )
    other = subgraph_of(
        [
            node("Concat", ["x", "x"], "m", name="large", axis=0),
            node("Neg", ["m"], "p"),
        ],
        [info("p", None)],
    )
    model = model_of_x([node("If", ["c"], "y", then_branch=one, else_branch=other)], ["y"])
    found = sizes_at(model, {"batch": 4})
    assert found.values["m"] == 256
    assert (found.nodes["o"].flops, found.nodes["p"].flops) == (32, 64)
    transfers = transfers_of(model, {"small", "large"})
    assert [transfer for transfer in transfers if transfer[0] == "m"] == [
        ("m", "cpu", "gpu", 256)
    ] * 2


def nested() -> onnx.ModelProto:
    """An `If` in a branch of an `If`: the inner one reads values of both graphs around it."""
    deep = subgraph_of([node("Add", ["b", "first"], "d")], [info("d", None)])
    flat = subgraph_of([node("Neg", ["b"], "e")], [info("e", None)])
    middle = subgraph_of(
        [
            node("Tanh", ["first"], "b"),
            node("If", ["c"], "i", then_branch=deep, else_branch=flat),
        ],
        [info("i", None)],
    )
    other = subgraph_of([node("Neg", ["first"], "n")], [info("n", None)])
    return model_of_x(
        [
            node("Relu", ["x"], "first"),
            node("If", ["c"], "y", then_branch=middle, else_branch=other),
        ],
        ["y"],
    )


def test_nested_subgraphs_have_a_cost() -> None:
    found = sizes_at(nested(), {"batch": 4})
    assert {name: cost.flops for name, cost in found.nodes.items()} == {
        **dict.fromkeys(("first", "b", "d", "e", "n"), 32),
        **dict.fromkeys(("y", "i"), 0),
    }
    assert all(cost.known for cost in found.nodes.values())


def test_transfers_inside_of_a_subgraph() -> None:
    """A node on the other provider: what it reads of the main graph, and what it computes."""
    assert transfers_of(branches(), {"then_one"}) == sorted(
        [("first", "gpu", "cpu", 128), ("m", "cpu", "gpu", 128), GIVEN_C, GIVEN, TAKEN]
    )


def test_outputs_of_a_subgraph_are_transferred_to_its_owner() -> None:
    assert transfers_of(branches(), {"else_two"}) == sorted(
        [("m", "gpu", "cpu", 128), ("out", "cpu", "gpu", 128), GIVEN_C, GIVEN, TAKEN]
    )


def test_who_reads_is_the_node_and_not_the_control_flow_around_it() -> None:
    """All consumers of `first` run where it is computed, although the `If` runs elsewhere."""
    on_cpu = {"first", "z", "then_one", "then_two", "else_one", "else_two"}
    assert transfers_of(branches(), on_cpu) == [TAKEN, ("z", "cpu", "gpu", 128)]
    inside = on_cpu - {"z"}
    assert transfers_of(branches(), inside) == sorted(
        [("out", "cpu", "gpu", 128), ("out", "cpu", "gpu", 128), GIVEN_C, TAKEN]
    )


def test_transfers_inside_of_a_nested_subgraph() -> None:
    assert transfers_of(nested(), {"d"}) == sorted(
        [
            ("b", "gpu", "cpu", 128),
            ("first", "gpu", "cpu", 128),
            ("d", "cpu", "gpu", 128),
            GIVEN_C,
            GIVEN,
            TAKEN,
        ]
    )


def test_graph_inputs_are_transferred_to_the_consumer_in_a_subgraph() -> None:
    """One branch reads `x` on the GPU; nothing is transferred from the other, on the CPU."""
    one = subgraph_of([node("Neg", ["x"], "o")], [info("o", None)])
    other = subgraph_of([node("Tanh", ["x"], "p")], [info("p", None)])
    model = model_of_x([node("If", ["c"], "y", then_branch=one, else_branch=other)], ["y"])
    assert transfers_of(model, {"p"}) == sorted([GIVEN, GIVEN_C, ("p", "cpu", "gpu", 128), TAKEN])
    assert transfers_of(model, {"o", "p"}) == sorted(
        [GIVEN_C, ("o", "cpu", "gpu", 128), ("p", "cpu", "gpu", 128), TAKEN]
    )


def test_constants_are_never_transferred() -> None:
    inner = subgraph_of(
        [node("Add", ["x", "outer"], "a"), node("Add", ["a", "inner"], "o")],
        [info("o", None)],
        constants=[weight("inner", 8)],
    )
    given = subgraph_of([], [info("kept", [4, 8])], constants=[weight("kept", 4, 8)])
    model = model_of_x(
        [node("If", ["c"], "y", then_branch=inner, else_branch=given)], ["y"], [weight("outer", 8)]
    )
    assert {transfer[0] for transfer in transfers_of(model, {"a"})} == {"c", "a", "y"}


def test_a_subgraph_that_returns_a_value_of_the_outer_graph() -> None:
    """Then the node that owns the subgraph reads it."""
    passed = subgraph_of([], [info("first", None)])
    other = subgraph_of([node("Neg", ["x"], "o")], [info("o", None)])
    model = model_of_x(
        [
            node("Relu", ["x"], "first"),
            node("If", ["c"], "y", then_branch=passed, else_branch=other),
        ],
        ["y"],
    )
    assert ("first", "cpu", "gpu", 128) in transfers_of(model, {"first"})
    assert "first" not in {transfer[0] for transfer in transfers_of(model, set())}


def loop(shape: Sequence[int | str] | None) -> onnx.ModelProto:
    """Three iterations of state times weights plus a value of the main graph; states stacked."""
    inside = subgraph_of(
        [
            node("Identity", ["go"], "goes"),
            node("MatMul", ["state", "w"], "m"),
            node("Add", ["m", "first"], "next"),
            node("Neg", ["next"], "each"),
        ],
        [info("goes", [], BOOL), info("next", None), info("each", None)],
        [info("at", [], INT64), info("go", [], BOOL), info("state", shape)],
    )
    return model_of_x(
        [
            node("Relu", ["x"], "first"),
            node("Tanh", ["x"], "start"),
            node("Loop", ["times", "c", "start"], ["y", "stack"], name="loop", body=inside),
        ],
        ["y"],
        [weight("w", 8, 8), numpy_helper.from_array(np.int64(3), "times")],
    )


@pytest.mark.parametrize("shape", [None, ["batch", 8], ["?", 8]])
def test_a_loop_counts_as_its_first_iteration(shape: Sequence[int | str] | None) -> None:
    found = sizes_at(loop(shape), {"batch": 4})
    if shape == ["?", 8]:
        assert not found.nodes["m"].known
        return
    assert found.nodes["m"] == NodeCompute(2 * 4 * 8 * 8, 4 * (32 + 64 + 32))
    assert found.nodes["next"] == NodeCompute(32, 4 * 96)
    assert found.nodes["loop"].flops == 0
    # The number of iterations is unknown.
    assert "stack" not in found.values


def test_a_state_that_grows_is_unknown_outside_of_its_loop() -> None:
    inside = subgraph_of(
        [node("Identity", ["go"], "goes"), node("Concat", ["state", "x"], "next", axis=0)],
        [info("goes", [], BOOL), info("next", None)],
        [info("at", [], INT64), info("go", [], BOOL), info("state", None)],
    )
    times = numpy_helper.from_array(np.int64(3), "times")
    model = model_of_x([node("Loop", ["times", "c", "x"], "y", body=inside)], ["y"], [times])
    found = sizes_at(model, {"batch": 4})
    assert found.nodes["next"] == NodeCompute(64, 4 * (32 + 32 + 64))
    assert "y" not in found.values
    assert not found.nodes["y"].known


def test_a_loop_inside_of_a_loop_and_of_a_branch() -> None:
    def around(
        name: str, state: str, nodes: Sequence[onnx.NodeProto], last: str
    ) -> onnx.GraphProto:
        return subgraph_of(
            [node("Identity", [f"go{name}"], f"goes{name}"), *nodes],
            [info(f"goes{name}", [], BOOL), info(last, None)],
            [info(f"at{name}", [], INT64), info(f"go{name}", [], BOOL), info(state, None)],
        )

    inner = around("2", "t", [node("Neg", ["t"], "u")], "u")
    outer = around("1", "s", [node("Loop", ["times", "", "s"], "v", body=inner)], "v")
    branch = subgraph_of([node("Loop", ["times", "", "x"], "o", body=outer)], [info("o", None)])
    flat = subgraph_of([node("Neg", ["x"], "p")], [info("p", None)])
    times = numpy_helper.from_array(np.int64(3), "times")
    model = model_of_x(
        [node("If", ["c"], "y", then_branch=branch, else_branch=flat)], ["y"], [times]
    )
    assert sizes_at(model, {"batch": 4}).nodes["u"] == NodeCompute(32, 256)


def test_transfers_in_a_loop() -> None:
    """The node that owns the subgraph makes its states: they are transferred in and back."""
    found = transfers_of(loop(None), {"m", "next"})
    assert [
        transfer for transfer in found if transfer[0] in ("state", "m", "next", "first", "start")
    ] == [
        ("first", "gpu", "cpu", 128),
        ("next", "cpu", "gpu", 128),
        ("state", "gpu", "cpu", 128),
    ]


def test_a_scan_counts_one_step() -> None:
    """One row of x (4 x 8) per step."""
    inside = subgraph_of(
        [node("Add", ["sum", "row"], "next"), node("Neg", ["next"], "out")],
        [info("next", None), info("out", None)],
        [info("sum", None), info("row", None)],
    )
    model = model_of_x(
        [node("Scan", ["zero", "x"], ["last", "y"], name="scan", body=inside, num_scan_inputs=1)],
        ["y"],
        [weight("zero", 8)],
    )
    found = sizes_at(model, {"batch": 4})
    assert found.nodes["next"] == NodeCompute(8, 4 * 24)
    assert found.nodes["scan"] == NodeCompute(0, 0)
    assert ("row", "gpu", "cpu", 32) in transfers_of(model, {"next"})


def test_subgraphs_of_stated_shapes() -> None:
    """The output of an ONNX Runtime operator is declared; subgraphs are inferred from it."""
    inside = subgraph_of([node("MatMul", ["g", "w"], "m")], [info("m", None)])
    other = subgraph_of([node("MatMul", ["g", "w"], "n")], [info("n", None)])
    model = model_of_x(
        [
            helper.make_node("FastGelu", ["x"], ["g"], name="g", domain="com.microsoft"),
            node("If", ["c"], "y", then_branch=inside, else_branch=other),
        ],
        ["y"],
        [weight("w", 8, 8)],
    )
    assert not sizes_at(model, {"batch": 4}).nodes["m"].known
    model.graph.input[0].CopyFrom(info("x", [4, 8]))
    typed = with_types(model, Path(), sizes=True)
    found = sizes_at(typed, {"batch": 4}, stated=True)
    assert found.nodes["m"] == found.nodes["n"] == NodeCompute(512, 512)


def test_in_subgraphs_inferred_types_precede_declared_ones() -> None:
    def branch(name: str, shape: Sequence[int | str]) -> onnx.GraphProto:
        result = subgraph_of(
            [
                node("Neg", ["x"], f"{name}n"),
                helper.make_node("Odd", [f"{name}n"], [f"{name}o"], name=f"{name}o", domain="own"),
                node("Neg", [f"{name}o"], name),
            ],
            [info(name, None)],
        )
        result.value_info.extend([info(f"{name}n", [1000, 1000]), info(f"{name}o", shape)])
        return result

    then, other = branch("t", ["batch", 2]), branch("e", ["nobody", 2])
    model = model_of_x([node("If", ["c"], "y", then_branch=then, else_branch=other)], ["y"])
    model.opset_import.append(helper.make_opsetid("own", 1))
    found = sizes_at(model, {"batch": 4})
    assert found.nodes["tn"] == NodeCompute(32, 256)
    assert found.nodes["to"] == NodeCompute(8, 128 + 32)
    assert not found.nodes["eo"].known


@pytest.mark.parametrize("goes_along", [False, True])
def test_a_node_of_control_flow_is_weighed_with_its_subgraphs(goes_along: bool) -> None:
    """Heavy branches are worth the boundary if they run on the provider of the `If`."""
    model = branches()
    graph = GraphView(with_types(model, Path()).graph)
    inside = {node.name for body in graph.bodies for node in body.nodes}
    everything = frozenset({node.name for node in graph.nodes} | inside)
    sizes = Sizes(
        nodes={name: NodeCompute(10**9 if name in inside else 0, 0) for name in everything},
        values={"first": 10**6, "z": 10**6, "c": 1},
        shapes={},
    )
    fast, slow = (
        Rates(flops=flops, bytes=1e12, transfer_bytes=1e9, transfer_seconds=1e-6)
        for flops in (1e12, 1e9)
    )
    claims = [("a", frozenset({"z"}) | (inside if goes_along else set())), ("b", everything)]
    found, _ = assign(graph, claims, Rules(rates={"a": fast, "b": slow}, sizes=sizes))
    assert found.providers["z"] == ("a" if goes_along else "b")
