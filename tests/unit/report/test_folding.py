from __future__ import annotations

from collections.abc import Iterator

from aotc.report.html.graph_data import DrawnGraph, DrawnNode, DrawnPart
from aotc.report.html.graph_drawing import MAX_CHILDREN, Group, fold


def chain(*names: str, parts: tuple[DrawnPart, ...] = ()) -> DrawnGraph:
    """Nodes in a row; the name of a node is also that of its weight."""
    nodes = tuple(
        DrawnNode(
            name=f"n{i}",
            op="Op",
            inputs=(f"v{i}",),
            outputs=(f"v{i + 1}",),
            weights=(f"{name}.weight{i}",) if name else (),
        )
        for i, name in enumerate(names)
    )
    return DrawnGraph(nodes=nodes, inputs=("v0",), outputs=(f"v{len(names)}",), parts=parts)


def leaves(group: Group) -> Iterator[int]:
    for child in group.children:
        if isinstance(child, int):
            yield child
        else:
            assert child.nodes == tuple(sorted(leaves(child)))
            yield from leaves(child)


def labels(group: Group) -> list[str]:
    return [child.label if isinstance(child, Group) else f"n{child}" for child in group.children]


def test_modules_are_folded_and_hold_every_node_once() -> None:
    graph = chain("a.x", "a.x", "a.y", "b.z", "b.z", "c")
    tree = fold(graph)
    assert labels(tree) == ["a", "b.z", "n5"]
    assert sorted(leaves(tree)) == list(range(6))


def test_a_module_that_is_left_and_entered_again_is_drawn_twice() -> None:
    tree = fold(chain("head", "head", "body", "body", "head", "head"))
    assert labels(tree) == ["head", "body", "head (2)"]


def test_nodes_without_names_are_folded_in_runs() -> None:
    tree = fold(chain(*([""] * 900)))
    assert len(tree.children) <= MAX_CHILDREN
    assert sorted(leaves(tree)) == list(range(900))
    first = tree.children[0]
    assert isinstance(first, Group)
    assert first.label == f"nodes 1 to {len(first.nodes)}"


def test_few_nodes_stay_as_they_are() -> None:
    assert fold(chain("", "", "")).children == (0, 1, 2)


def test_partitions_come_before_modules() -> None:
    parts = (
        DrawnPart(provider="CUDAExecutionProvider", nodes=(0, 1)),
        DrawnPart(provider="CPUExecutionProvider", nodes=(2, 3)),
    )
    tree = fold(chain("a", "a", "a", "b", parts=parts), ("cuda0",))
    assert labels(tree) == ["cuda0", "partition 2"]
    first = tree.children[0]
    assert isinstance(first, Group)
    assert (first.kind, first.provider) == ("partition", "CUDAExecutionProvider")
    assert sorted(leaves(tree)) == [0, 1, 2, 3]
