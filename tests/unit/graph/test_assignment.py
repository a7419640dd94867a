"""Claims become partitions: what holds for every division, on random graphs and claims."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from aotc.graph.partition.assignment import Assignment, NodeCompute, Part, Rules, Sizes, assign
from aotc.graph.view import GraphView, every_node
from aotc.spec.providers import Rates

Claimed = list[tuple[str, frozenset[str]]]

SLOW = Rates(flops=1e9, bytes=1e12, transfer_bytes=1e9, transfer_seconds=1e-6)
FAST = Rates(flops=1e11, bytes=1e12, transfer_bytes=1e9, transfer_seconds=1e-6)


@dataclass(frozen=True, slots=True)
class Case:
    """A graph, what its providers claim, and the minimum size of a partition."""

    graph: GraphView
    claims: tuple[tuple[str, frozenset[str]], ...]
    min_nodes: int


def graph_of(edges: Sequence[Sequence[int]], bodies: Sequence[tuple[int, int]] = ()) -> GraphView:
    """Nodes `n0`..; node i reads the nodes `edges[i]`, all before it, or the input `x` if none.

    `bodies` are (owner, count): so many nodes in one subgraph of the owner.
    """
    nodes = [
        helper.make_node("Add", [f"v{at}" for at in sources] or ["x"], [f"v{index}"], f"n{index}")
        for index, sources in enumerate(edges)
    ]
    for owner, count in bodies:
        inside = [helper.make_node("Add", [], [], f"n{owner}b{i}") for i in range(count)]
        body = helper.make_graph(inside, "body", [], [])
        nodes[owner].attribute.append(helper.make_attribute("body", body))
    read = {value for node in nodes for value in node.input}
    outputs = [onnx.ValueInfoProto(name=f"v{i}") for i in range(len(nodes)) if f"v{i}" not in read]
    inputs = [onnx.ValueInfoProto(name="x")]
    return GraphView(helper.make_graph(nodes, "graph", inputs, outputs))


def chain(length: int) -> GraphView:
    return graph_of([[index - 1] if index else [] for index in range(length)])


def every_name(graph: GraphView) -> frozenset[str]:
    return frozenset(node.name for node in every_node(graph.graph))


@st.composite
def cases(draw: st.DrawFn, *, most: int = 24) -> Case:
    count = draw(st.integers(1, most))
    edges = [
        draw(st.lists(st.integers(0, index - 1), max_size=3, unique=True)) if index else []
        for index in range(count)
    ]
    owners = draw(st.lists(st.integers(0, count - 1), max_size=2, unique=True))
    graph = graph_of(edges, [(owner, draw(st.integers(1, 3))) for owner in owners])
    names = sorted(every_name(graph))
    claims: Claimed = [
        (f"p{index}", frozenset(draw(st.lists(st.sampled_from(names), unique=True))))
        for index in range(draw(st.integers(1, 3)))
    ]
    claims.append(("last", frozenset(names)))
    return Case(graph, tuple(claims), draw(st.integers(1, 5)))


def division(case: Case, **rules: object) -> Assignment:
    found, missing = assign(
        case.graph,
        case.claims,
        Rules(min_nodes=case.min_nodes, **rules),  # type: ignore[arg-type]
    )
    assert missing == ()
    return found


def assert_partitions(case: Case, found: Assignment) -> None:
    """What every division promises, checked without the levels by which it is made."""
    graph, parts = case.graph, found.parts
    assert sorted(index for part in parts for index in part.nodes) == list(range(len(graph.nodes)))
    claimed = dict(case.claims)
    part_of = {index: number for number, part in enumerate(parts) for index in part.nodes}
    for part in parts:
        assert list(part.nodes) == sorted(part.nodes)
        for index in part.nodes:
            name = graph.nodes[index].name
            assert name in claimed[part.provider]
            assert found.providers[name] == part.provider
    for index, before in enumerate(graph.before):
        for source in before:
            # Complete parts run in the given order, so every part is convex: no path comes back.
            assert part_of[source] <= part_of[index]
    for node in every_node(graph.graph):
        assert node.name in claimed[found.providers[node.name]]
    assert set(found.providers) == every_name(graph)


def assert_convex(graph: GraphView, part: Part) -> None:
    """No path leaves the part and comes back: follows every path out of it."""
    own = set(part.nodes)
    tainted: set[int] = set()
    for index, node in enumerate(graph.nodes):
        sources = set(graph.before[index])
        if index in own:
            assert not sources & tainted, f"{node.name} reads what left the part"
        elif sources & (own | tainted):
            tainted.add(index)


@given(cases())
def test_every_division_is_one(case: Case) -> None:
    found = division(case)
    assert_partitions(case, found)
    for part in found.parts:
        assert_convex(case.graph, part)


@given(cases())
def test_neighbours_on_one_provider_are_one_part_unless_separated(case: Case) -> None:
    """A single provider gives one partition, whatever the graph."""
    alone = replace(case, claims=(case.claims[-1],))
    assert len(division(alone).parts) == 1


@given(cases())
def test_no_part_is_below_the_minimum_unless_nobody_else_takes_it(case: Case) -> None:
    order = [name for name, _ in case.claims]
    claimed = dict(case.claims)
    for part in division(case).parts:
        if len(part.nodes) < case.min_nodes:
            later = order[order.index(part.provider) + 1 :]
            kept = [
                index
                for index in part.nodes
                if not any(case.graph.nodes[index].name in claimed[name] for name in later)
            ]
            assert kept, f"{part} is small, and each of its nodes has another taker"


@given(cases(), st.data())
def test_with_weighed_boundaries_it_is_still_a_division(case: Case, data: st.DataObject) -> None:
    flops = st.integers(0, 10**9)
    sizes = Sizes(
        nodes={
            node.name: NodeCompute(data.draw(flops), data.draw(flops)) for node in case.graph.nodes
        },
        values={
            value: data.draw(st.integers(0, 10**8))
            for node in case.graph.nodes
            for value in node.output
        },
        shapes={},
    )
    rates = {name: FAST if index == 0 else SLOW for index, (name, _) in enumerate(case.claims)}
    found = division(case, rates=rates, sizes=sizes)
    assert_partitions(case, found)
    for part in found.parts:
        assert_convex(case.graph, part)


@given(cases())
def test_who_was_first_to_claim_has_it_or_a_reason_says_why_not(case: Case) -> None:
    found = division(case)
    for node in case.graph.nodes:
        first = next(name for name, names in case.claims if node.name in names)
        assert (found.providers[node.name] != first) == (node.name in found.reassigned)
    for why in found.reassigned.values():
        assert f"fewer than {case.min_nodes}" in why


@given(cases(), st.data())
def test_unclaimed_nodes_are_named(case: Case, data: st.DataObject) -> None:
    names = sorted(every_name(case.graph))
    lost = set(data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))
    claims = [(name, nodes - lost) for name, nodes in case.claims]
    found, missing = assign(case.graph, claims, Rules(min_nodes=case.min_nodes))
    assert set(missing) == lost
    assert len(missing) == len(lost)
    assert found.parts == ()


@given(cases())
def test_a_provider_without_subgraphs_gets_them_only_with_their_owner(case: Case) -> None:
    """A compiled part replaces complete nodes of the main graph, including their subgraphs."""
    found = division(case, not_in_subgraphs=frozenset({"p0"}))
    for body in case.graph.bodies:
        for node in body.nodes:
            if found.providers[node.name] == "p0":
                assert found.providers[body.owner] == "p0"


@given(cases())
def test_compiled_parts_contain_all_nodes_of_their_subgraphs(case: Case) -> None:
    """A claimed owner cannot be compiled if its provider did not claim its subgraph."""
    found = division(case, not_in_subgraphs=frozenset({"p0"}))
    claimed = dict(case.claims)["p0"]
    for body in case.graph.bodies:
        for node in body.nodes:
            if found.providers[body.owner] == "p0" and node.name in claimed:
                assert found.providers[node.name] == "p0"


def test_the_same_claims_give_the_same_parts() -> None:
    random_ = random.Random(5)
    edges = [random_.sample(range(i), min(i, 2)) for i in range(200)]
    graph = graph_of(edges)
    first = frozenset(f"n{i}" for i in range(200) if random_.random() < 0.7)
    claims = [("a", first), ("b", every_name(graph))]
    assert assign(graph, claims, Rules()) == assign(graph, list(claims), Rules())


def test_a_refused_node_in_the_middle_makes_three_parts() -> None:
    graph = chain(5)
    claims = [("a", every_name(graph) - {"n2"}), ("b", every_name(graph))]
    found, _ = assign(graph, claims, Rules())
    assert [(part.provider, part.nodes) for part in found.parts] == [
        ("a", (0, 1)),
        ("b", (2,)),
        ("a", (3, 4)),
    ]


def test_a_branch_next_to_a_refused_node_does_not_close_a_cycle() -> None:
    """n0 -> n1 -> n3 and n0 -> n2 -> n3: with n1 refused, n2 may join n0 or n3, not both."""
    graph = graph_of([[], [0], [0], [1, 2]])
    claims = [("a", every_name(graph) - {"n1"}), ("b", every_name(graph))]
    found, _ = assign(graph, claims, Rules())
    case = Case(graph, tuple(claims), 1)
    assert_partitions(case, found)
    assert len(found.parts) == 3


def test_a_part_given_away_joins_its_neighbours() -> None:
    """a a b a a: with a minimum of three, provider a gets nothing, and one part remains."""
    graph = chain(5)
    claims = [("a", every_name(graph) - {"n2"}), ("b", every_name(graph))]
    found, _ = assign(graph, claims, Rules(min_nodes=3))
    assert [(part.provider, len(part.nodes)) for part in found.parts] == [("b", 5)]
    assert set(found.reassigned) == {"n0", "n1", "n3", "n4"}
    assert found.reassigned["n0"] == "its partition has 2 nodes, fewer than 3"


def weighed_chain(
    flops: int, border_bytes: int, *, length: int = 9, middle: int = 4
) -> tuple[GraphView, Assignment]:
    """A chain in which `a` claims one node in the middle, of `flops` operations."""
    graph = chain(length)
    sizes = Sizes(
        nodes={
            node.name: NodeCompute(flops if index == middle else 1000, 8)
            for index, node in enumerate(graph.nodes)
        },
        values={f"v{index}": border_bytes for index in range(length)},
        shapes={},
    )
    claims = [("a", frozenset({f"n{middle}"})), ("b", every_name(graph))]
    rules = Rules(rates={"a": FAST, "b": SLOW}, sizes=sizes)
    found, missing = assign(graph, claims, rules)
    assert missing == ()
    return graph, found


def test_a_tiny_part_with_large_boundaries_goes_to_its_neighbour() -> None:
    _, found = weighed_chain(flops=1000, border_bytes=1 << 20)
    assert [part.provider for part in found.parts] == ["b"]
    assert found.reassigned == {"n4": "its boundaries cost more than it gains"}


def test_a_heavy_part_is_kept() -> None:
    _, found = weighed_chain(flops=10**9, border_bytes=1 << 20)
    assert [part.provider for part in found.parts] == ["b", "a", "b"]
    assert found.reassigned == {}


def test_a_part_stays_only_if_its_gain_exceeds_its_cost() -> None:
    """By hand: 2 tensors, 2 * 1e-6 s and 2 * 1e6 / 1e9 s; gain flops * (1/1e9 - 1/1e11)."""
    cost = 2e-6 + 2 * 1e6 / 1e9
    even = cost / (1 / 1e9 - 1 / 1e11)
    _, below = weighed_chain(flops=int(even * 0.99), border_bytes=10**6)
    _, above = weighed_chain(flops=int(even * 1.01), border_bytes=10**6)
    assert len(below.parts) == 1
    assert len(above.parts) == 3


def test_graph_inputs_and_outputs_are_not_a_boundary() -> None:
    graph = chain(2)
    sizes = Sizes(
        nodes={"n0": NodeCompute(10, 0), "n1": NodeCompute(10, 0)},
        values={"x": 1 << 40, "v0": 1, "v1": 1 << 40},
        shapes={},
    )
    claims = [("a", every_name(graph)), ("b", every_name(graph))]
    found, _ = assign(graph, claims, Rules(rates={"a": FAST, "b": SLOW}, sizes=sizes))
    assert [part.provider for part in found.parts] == ["a"]


def test_a_value_with_many_consumers_is_transferred_once() -> None:
    """One tensor to three consumers: by hand 1e-6 + 1e-3 s against a gain of 1.5 times that."""
    graph = graph_of([[], [0], [0], [0]])
    gain = 1.5 * (1e-6 + 1e-3)
    flops = int(gain / (1 / 1e9 - 1 / 1e11))
    sizes = Sizes(
        nodes={"n0": NodeCompute(flops, 0), **{f"n{i}": NodeCompute(1, 0) for i in (1, 2, 3)}},
        values={f"v{i}": 10**6 for i in range(4)},
        shapes={},
    )
    claims = [("a", frozenset({"n0"})), ("b", every_name(graph))]
    found, _ = assign(graph, claims, Rules(rates={"a": FAST, "b": SLOW}, sizes=sizes))
    assert found.providers["n0"] == "a"


def test_a_subgraph_follows_its_own_claims() -> None:
    graph = graph_of([[], [0], [1]], [(1, 2)])
    claims = [("a", frozenset({"n0", "n1", "n1b0", "n1b1"})), ("b", every_name(graph))]
    found, _ = assign(graph, claims, Rules())
    assert (found.providers["n1b0"], found.providers["n2"]) == ("a", "b")


def test_a_subgraph_is_never_before_its_owner() -> None:
    """If its owner is reassigned, a subgraph does not stay with the provider that lost it."""
    graph = graph_of([[], [0], [1]], [(1, 2)])
    claims = [("a", frozenset({"n1", "n1b0", "n1b1"})), ("b", every_name(graph))]
    found, _ = assign(graph, claims, Rules(min_nodes=2))
    assert {found.providers[name] for name in ("n1", "n1b0", "n1b1")} == {"b"}


def test_a_provider_without_subgraphs_loses_one_whose_owner_was_refused() -> None:
    graph = graph_of([[], [0], [1]], [(1, 1)])
    claims = [("a", frozenset({"n0", "n2", "n1b0"})), ("b", every_name(graph))]
    found, missing = assign(graph, claims, Rules(not_in_subgraphs=frozenset({"a"})))
    assert missing == ()
    assert (found.providers["n1"], found.providers["n1b0"]) == ("b", "b")


def test_a_subgraph_claimed_only_by_a_provider_without_subgraphs_has_no_provider() -> None:
    graph = graph_of([[], [0]], [(1, 1)])
    claims = [("a", frozenset({"n0", "n1b0"})), ("b", frozenset({"n0", "n1"}))]
    _, missing = assign(graph, claims, Rules(not_in_subgraphs=frozenset({"a"})))
    assert missing == ("n1b0",)


@pytest.mark.parametrize("weigh", [False, True])
def test_ten_thousand_nodes(weigh: bool) -> None:
    random_ = random.Random(11)
    count = 10_000
    edges = [
        sorted(random_.sample(range(max(0, i - 30), i), min(i, random_.randint(1, 3))))
        for i in range(count)
    ]
    graph = graph_of(edges)
    names = every_name(graph)
    claims = (
        ("a", frozenset(name for name in sorted(names) if random_.random() < 0.9)),
        ("b", frozenset(name for name in sorted(names) if random_.random() < 0.9)),
        ("last", names),
    )
    case = Case(graph, claims, 3)
    sizes = Sizes(
        nodes={
            node.name: NodeCompute(random_.randrange(10**7), random_.randrange(10**5))
            for node in graph.nodes
        },
        values={f"v{i}": random_.randrange(10**5) for i in range(count)},
        shapes={},
    )
    rates = {"a": FAST, "b": SLOW, "last": SLOW} if weigh else None
    assert_partitions(case, division(case, rates=rates, sizes=sizes if weigh else None))
