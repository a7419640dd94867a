"""Which node of one graph is which of another."""

from __future__ import annotations

from aotc.tools.diff.graphs import MatchedNodes, Node, match_nodes


def node(name: str, op: str, inputs: str, outputs: str) -> Node:
    return Node(name, op, "CPU", tuple(inputs.split()), tuple(outputs.split()))


def names(a: list[Node], b: list[Node], outputs: tuple[str, ...] = ("y",)) -> dict[str, str]:
    found = match_nodes(a, b, outputs, outputs)
    return {a[one].name: b[other].name for one, other in found.items()}


A = [
    node("first", "MatMul", "x W", "h"),
    node("act", "Relu", "h", "r"),
    node("last", "MatMul", "r V", "y"),
]


def test_a_graph_is_itself() -> None:
    assert names(A, list(A)) == {"first": "first", "act": "act", "last": "last"}


def test_renamed_nodes_and_values_are_found_by_structure() -> None:
    b = [
        node("n0", "MatMul", "x W", "v0"),
        node("n1", "Relu", "v0", "v1"),
        node("n2", "MatMul", "v1 V", "y"),
    ]
    assert names(A, b) == {"first": "n0", "act": "n1", "last": "n2"}


def test_a_node_between_renamed_ones_is_the_only_new_one() -> None:
    b = [
        node("n0", "MatMul", "x W", "v0"),
        node("new", "Cast", "v0", "c"),
        node("n1", "Relu", "c", "v1"),
        node("n2", "MatMul", "v1 other", "y"),
    ]
    assert names(A, b) == {"first": "n0", "act": "n1", "last": "n2"}


def test_a_fused_node_replaces_what_it_was_made_of() -> None:
    b = [node("fused", "FusedMatMul", "x W", "r"), node("last", "MatMul", "r V", "y")]
    assert names(A, b) == {"last": "last"}


def test_a_name_with_another_operator_is_the_last_resort() -> None:
    b = [
        node("first", "Gemm", "x W", "h"),
        node("renamed", "Relu", "h", "r"),
        node("last", "MatMul", "r V", "y"),
    ]
    assert names(A, b) == {"first": "first", "act": "renamed", "last": "last"}
    # The name is taken by the node that has its operator.
    c = [node("act", "Sigmoid", "h", "s"), node("other", "Relu", "h", "r")]
    assert names([node("act", "Relu", "h", "r")], c, ("r",)) == {"act": "other"}


def test_repeated_and_empty_names() -> None:
    same = [node("n", "Relu", "x", "h"), node("n", "Relu", "h", "y")]
    assert match_nodes(same, list(same), ("y",), ("y",)) == {0: 0, 1: 1}
    unnamed = [node("", "Relu", "x", "h"), node("", "Relu", "h", "y")]
    assert match_nodes(unnamed, list(unnamed), ("y",), ("y",)) == {0: 0, 1: 1}
    unknown = [Node("", "Relu", "CPU")]
    assert match_nodes(unknown, list(unknown)) == {}, "nothing says that they are the same"


def test_twins_are_told_apart_by_what_else_they_read() -> None:
    a = [node("a", "Add", "x U", "h"), node("b", "Add", "x V", "k")]
    b = [node("p", "Add", "x V", "k2"), node("q", "Add", "x U", "h2")]
    assert names(a, b, ()) == {"a": "q", "b": "p"}


def test_many_renamed_nodes_take_one_pass() -> None:
    """A chain of 5,000 nodes under other names; the order of the list is the execution's."""
    count = 5000

    def chain(prefix: str) -> list[Node]:
        values = ["x", *(f"{prefix}v{index}" for index in range(1, count)), "y"]
        return [
            node(f"{prefix}{index}", "Relu", values[index], values[index + 1])
            for index in range(count)
        ]

    found = match_nodes(chain("a"), chain("b"), ("y",), ("y",))
    assert found == {index: index for index in range(count)}


def test_what_the_same_nodes_read() -> None:
    """At one input where the operators are one; else any with any, as their order differs."""
    a = [node("c", "Conv", "x W b", "y"), node("r", "Relu", "y", "z")]
    b = [node("c", "QLinearConv", "x s V", "y"), node("r", "Relu", "y", "z")]
    matched = MatchedNodes(label="v", a=a, b=b, found={0: 0, 1: 1}, by_structure=True)
    crossed = {(one, other, False) for one in ("x", "W", "b") for other in ("x", "s", "V")}
    assert set(matched.same_inputs()) == {*crossed, ("y", "y", True)}
