"""What is inside of bodies of control flow: its cost, its share, and what crosses there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.backends.base import Rates
from aotc.contract.manifest.divided_graph import PartitionReport
from aotc.graphs.value_types import with_types
from aotc.partitioning.assignment import Assignment, Rules, assign
from aotc.partitioning.compute import NodeCompute, Sizes, sizes_at
from aotc.partitioning.graph import read_graph
from aotc.partitioning.partition_report import partition_report

FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
DEVICES = {"gpu": "gpu", "cpu": "cpu"}


def info(name: str, shape: Sequence[int | str] | None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def node(
    op: str,
    inputs: Sequence[str],
    outputs: str | Sequence[str],
    name: str = "",
    **attributes: object,
) -> onnx.NodeProto:
    """A node of the name of its first output, or of one given."""
    outputs = [outputs] if isinstance(outputs, str) else outputs
    return helper.make_node(op, inputs, outputs, name=name or outputs[0], **attributes)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def body(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[onnx.ValueInfoProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    constants: Sequence[onnx.TensorProto] = (),
) -> onnx.GraphProto:
    return helper.make_graph(nodes, "body", inputs, outputs, constants)


def made(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    constants: Sequence[onnx.TensorProto] = (),
    inputs: Sequence[onnx.ValueInfoProto] = (),
) -> onnx.ModelProto:
    """A model of `x` (batch x 8) and the truth `c`."""
    graph = helper.make_graph(
        nodes,
        "made",
        [info("x", ["batch", 8]), info("c", [], BOOL), *inputs],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        constants,
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def heavy(prefix: str) -> onnx.GraphProto:
    """Two products of 8 x 8, of inner values that all such bodies name alike."""
    return body(
        [
            node("MatMul", ["first", "w"], "m", f"{prefix}_one"),
            node("MatMul", ["m", "w"], "out", f"{prefix}_two"),
        ],
        [info("out", None)],
    )


def branches() -> onnx.ModelProto:
    """A light node, and an `If` with heavy branches."""
    return made(
        [
            node("Relu", ["x"], "first"),
            node("If", ["c"], "z", then_branch=heavy("then"), else_branch=heavy("else")),
            node("Neg", ["z"], "y"),
        ],
        ["y"],
        [weight("w", 8, 8)],
    )


def divided(
    model: onnx.ModelProto, on_cpu: set[str], batch: int = 4
) -> tuple[Assignment, PartitionReport]:
    """Every node on `gpu` but those named."""
    typed = with_types(model, Path())
    graph = read_graph(typed)
    names = {node.name for node in graph.nodes} | {node.name for node in graph.subgraph_nodes}
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


def crossed(model: onnx.ModelProto, on_cpu: set[str]) -> list[tuple[str, str, str, int | None]]:
    """Value, from, to, and bytes at a batch of 4: 4 * 4 * 8 is 128."""
    _, found = divided(model, on_cpu)
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


def test_a_body_on_another_provider_has_its_share_of_compute() -> None:
    inside = {"then_one", "then_two", "else_one", "else_two"}
    _, found = divided(branches(), inside)
    gpu, cpu = found.providers
    assert (gpu.opt.flops, cpu.opt.flops) == (2 * 32, 4 * 512)
    assert cpu.flops_share == round(2048 / (2048 + 64), 4)
    assert (cpu.nodes, cpu.max.flops, cpu.opt.unknown) == (4, 2 * 2048, 0)


def test_values_of_one_name_in_two_bodies_are_two() -> None:
    """The larger size counts for the name, and each node has the costs of its own."""
    one = body([node("Neg", ["x"], "m", "small"), node("Neg", ["m"], "o")], [info("o", None)])
    other = body(
        [
            node("Concat", ["x", "x"], "m", "large", axis=0),
            node("Neg", ["m"], "p"),
        ],
        [info("p", None)],
    )
    model = made([node("If", ["c"], "y", then_branch=one, else_branch=other)], ["y"])
    found = sizes_at(model, {"batch": 4})
    assert found.values["m"] == 256
    assert (found.nodes["o"].flops, found.nodes["p"].flops) == (32, 64)
    crossings = crossed(model, {"small", "large"})
    assert [crossing for crossing in crossings if crossing[0] == "m"] == [
        ("m", "cpu", "gpu", 256)
    ] * 2


def nested() -> onnx.ModelProto:
    """An `If` in a branch of an `If`: the inner reads values of both graphs around it."""
    deep = body([node("Add", ["b", "first"], "d")], [info("d", None)])
    flat = body([node("Neg", ["b"], "e")], [info("e", None)])
    middle = body(
        [
            node("Tanh", ["first"], "b"),
            node("If", ["c"], "i", then_branch=deep, else_branch=flat),
        ],
        [info("i", None)],
    )
    other = body([node("Neg", ["first"], "n")], [info("n", None)])
    return made(
        [
            node("Relu", ["x"], "first"),
            node("If", ["c"], "y", then_branch=middle, else_branch=other),
        ],
        ["y"],
    )


def test_subgraphs_inside_of_bodies_cost() -> None:
    found = sizes_at(nested(), {"batch": 4})
    assert {name: cost.flops for name, cost in found.nodes.items()} == {
        **dict.fromkeys(("first", "b", "d", "e", "n"), 32),
        **dict.fromkeys(("y", "i"), 0),
    }
    assert all(cost.known for cost in found.nodes.values())


def test_what_crosses_inside_of_a_body() -> None:
    """What a node on the other provider reads of the main graph, and what it makes."""
    assert crossed(branches(), {"then_one"}) == sorted(
        [("first", "gpu", "cpu", 128), ("m", "cpu", "gpu", 128), GIVEN_C, GIVEN, TAKEN]
    )


def test_what_a_body_gives_back_crosses_to_the_node_that_holds_it() -> None:
    assert crossed(branches(), {"else_two"}) == sorted(
        [("m", "gpu", "cpu", 128), ("out", "cpu", "gpu", 128), GIVEN_C, GIVEN, TAKEN]
    )


def test_who_reads_is_the_node_and_not_the_control_flow_around_it() -> None:
    """All readers of `first` are where it is made, though the `If` is elsewhere."""
    on_cpu = {"first", "z", "then_one", "then_two", "else_one", "else_two"}
    assert crossed(branches(), on_cpu) == [TAKEN, ("z", "cpu", "gpu", 128)]
    inside = on_cpu - {"z"}
    assert crossed(branches(), inside) == sorted(
        [("out", "cpu", "gpu", 128), ("out", "cpu", "gpu", 128), GIVEN_C, TAKEN]
    )


def test_what_crosses_in_a_body_inside_of_a_body() -> None:
    assert crossed(nested(), {"d"}) == sorted(
        [
            ("b", "gpu", "cpu", 128),
            ("first", "gpu", "cpu", 128),
            ("d", "cpu", "gpu", 128),
            GIVEN_C,
            GIVEN,
            TAKEN,
        ]
    )


def test_inputs_of_the_graph_cross_to_the_node_in_a_body_that_reads_them() -> None:
    """`x` is read on the GPU by one branch; nothing of the other, on the CPU, crosses to it."""
    one = body([node("Neg", ["x"], "o")], [info("o", None)])
    other = body([node("Tanh", ["x"], "p")], [info("p", None)])
    model = made([node("If", ["c"], "y", then_branch=one, else_branch=other)], ["y"])
    assert crossed(model, {"p"}) == sorted([GIVEN, GIVEN_C, ("p", "cpu", "gpu", 128), TAKEN])
    assert crossed(model, {"o", "p"}) == sorted(
        [GIVEN_C, ("o", "cpu", "gpu", 128), ("p", "cpu", "gpu", 128), TAKEN]
    )


def test_constants_of_any_graph_cross_nowhere() -> None:
    inner = body(
        [node("Add", ["x", "outer"], "a"), node("Add", ["a", "inner"], "o")],
        [info("o", None)],
        constants=[weight("inner", 8)],
    )
    given = body([], [info("kept", [4, 8])], constants=[weight("kept", 4, 8)])
    model = made(
        [node("If", ["c"], "y", then_branch=inner, else_branch=given)], ["y"], [weight("outer", 8)]
    )
    assert {transfer[0] for transfer in crossed(model, {"a"})} == {"c", "a", "y"}


def test_a_body_that_gives_back_a_value_of_the_graph_around_it() -> None:
    """The node that holds the body reads it then."""
    passed = body([], [info("first", None)])
    other = body([node("Neg", ["x"], "o")], [info("o", None)])
    model = made(
        [
            node("Relu", ["x"], "first"),
            node("If", ["c"], "y", then_branch=passed, else_branch=other),
        ],
        ["y"],
    )
    assert ("first", "cpu", "gpu", 128) in crossed(model, {"first"})
    assert "first" not in {transfer[0] for transfer in crossed(model, set())}


def loop(shape: Sequence[int | str] | None) -> onnx.ModelProto:
    """Three times: the state times weights, plus a value of the main graph; all states stacked."""
    inside = body(
        [
            node("Identity", ["go"], "goes"),
            node("MatMul", ["state", "w"], "m"),
            node("Add", ["m", "first"], "next"),
            node("Neg", ["next"], "each"),
        ],
        [info("goes", [], BOOL), info("next", None), info("each", None)],
        [info("at", [], INT64), info("go", [], BOOL), info("state", shape)],
    )
    return made(
        [
            node("Relu", ["x"], "first"),
            node("Tanh", ["x"], "start"),
            node("Loop", ["times", "c", "start"], ["y", "stack"], "loop", body=inside),
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
    # How long it runs nobody knows.
    assert "stack" not in found.values


def test_a_state_that_grows_is_unknown_outside_of_its_loop() -> None:
    inside = body(
        [node("Identity", ["go"], "goes"), node("Concat", ["state", "x"], "next", axis=0)],
        [info("goes", [], BOOL), info("next", None)],
        [info("at", [], INT64), info("go", [], BOOL), info("state", None)],
    )
    times = numpy_helper.from_array(np.int64(3), "times")
    model = made([node("Loop", ["times", "c", "x"], "y", body=inside)], ["y"], [times])
    found = sizes_at(model, {"batch": 4})
    assert found.nodes["next"] == NodeCompute(64, 4 * (32 + 32 + 64))
    assert "y" not in found.values
    assert not found.nodes["y"].known


def test_a_loop_inside_of_a_loop_and_of_a_branch() -> None:
    def around(
        name: str, state: str, nodes: Sequence[onnx.NodeProto], last: str
    ) -> onnx.GraphProto:
        return body(
            [node("Identity", [f"go{name}"], f"goes{name}"), *nodes],
            [info(f"goes{name}", [], BOOL), info(last, None)],
            [info(f"at{name}", [], INT64), info(f"go{name}", [], BOOL), info(state, None)],
        )

    inner = around("2", "t", [node("Neg", ["t"], "u")], "u")
    outer = around("1", "s", [node("Loop", ["times", "", "s"], "v", body=inner)], "v")
    branch = body([node("Loop", ["times", "", "x"], "o", body=outer)], [info("o", None)])
    flat = body([node("Neg", ["x"], "p")], [info("p", None)])
    times = numpy_helper.from_array(np.int64(3), "times")
    model = made([node("If", ["c"], "y", then_branch=branch, else_branch=flat)], ["y"], [times])
    assert sizes_at(model, {"batch": 4}).nodes["u"] == NodeCompute(32, 256)


def test_what_crosses_in_a_loop() -> None:
    """The node that holds the body makes its states: they cross in, and cross back."""
    found = crossed(loop(None), {"m", "next"})
    assert [
        transfer for transfer in found if transfer[0] in ("state", "m", "next", "first", "start")
    ] == [
        ("first", "gpu", "cpu", 128),
        ("next", "cpu", "gpu", 128),
        ("state", "gpu", "cpu", 128),
    ]


def test_a_scan_counts_one_step() -> None:
    """Of x (4 x 8) one row a step."""
    inside = body(
        [node("Add", ["sum", "row"], "next"), node("Neg", ["next"], "out")],
        [info("next", None), info("out", None)],
        [info("sum", None), info("row", None)],
    )
    model = made(
        [node("Scan", ["zero", "x"], ["last", "y"], "scan", body=inside, num_scan_inputs=1)],
        ["y"],
        [weight("zero", 8)],
    )
    found = sizes_at(model, {"batch": 4})
    assert found.nodes["next"] == NodeCompute(8, 4 * 24)
    assert found.nodes["scan"] == NodeCompute(0, 0)
    assert ("row", "gpu", "cpu", 32) in crossed(model, {"next"})


def test_subgraphs_of_stated_shapes() -> None:
    """What a node of ONNX Runtime's own makes is stated, and bodies are inferred from it."""
    inside = body([node("MatMul", ["g", "w"], "m")], [info("m", None)])
    other = body([node("MatMul", ["g", "w"], "n")], [info("n", None)])
    model = made(
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


def test_in_bodies_what_inference_finds_goes_before_what_is_declared() -> None:
    def branch(name: str, shape: Sequence[int | str]) -> onnx.GraphProto:
        result = body(
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
    model = made([node("If", ["c"], "y", then_branch=then, else_branch=other)], ["y"])
    model.opset_import.append(helper.make_opsetid("own", 1))
    found = sizes_at(model, {"batch": 4})
    assert found.nodes["tn"] == NodeCompute(32, 256)
    assert found.nodes["to"] == NodeCompute(8, 128 + 32)
    assert not found.nodes["eo"].known


@pytest.mark.parametrize("goes_along", [False, True])
def test_a_node_of_control_flow_is_weighed_with_its_bodies(goes_along: bool) -> None:
    """Heavy branches are worth the border, where they run on the provider that takes the `If`."""
    model = branches()
    graph = read_graph(with_types(model, Path()))
    inside = {node.name for node in graph.subgraph_nodes}
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


def test_what_nodes_of_bodies_read_and_make() -> None:
    graph = read_graph(with_types(nested(), Path()))
    assert {node.name: node.inputs for node in graph.subgraph_nodes} == {
        "b": ("first",),
        "i": ("c",),
        "d": ("b", "first"),
        "e": ("b",),
        "n": ("first",),
    }
    assert {node.name: node.outputs for node in graph.subgraph_nodes} == {
        name: (name,) for name in ("b", "i", "d", "e", "n")
    }
    (holder,) = (node for node in graph.nodes if node.inner_nodes)
    assert (set(holder.inputs), holder.captured) == ({"c", "first"}, {"first"})
    assert [(subgraph.holder, subgraph.parent) for subgraph in graph.subgraphs] == [
        ("y", None),
        ("y", None),
        ("i", 1),
        ("i", 1),
    ]
    assert graph.dtypes["d"] == graph.dtypes["i"] == "float"
