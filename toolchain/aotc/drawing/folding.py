"""The tree of a drawn graph: partitions, modules, runs of nodes, nodes.

A group that holds one thing alone is that thing, so that each click shows something new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from aotc.drawing.graph_reading import DrawnGraph
from aotc.drawing.module_names import Module, modules_of
from aotc.records import record

# More things than this side by side are folded into runs.
MAX_CHILDREN: Final = 40
_RUN: Final = 16


@record
class Group:
    """Nodes that are folded into one box; children are groups, and nodes by their index."""

    label: str
    kind: Literal["graph", "partition", "module", "run"]
    children: tuple[Group | int, ...]
    nodes: Annotated[tuple[int, ...], "all nodes within, in order of execution"]
    provider: Annotated[str, "of a partition"] = ""


def fold(graph: DrawnGraph, part_names: Sequence[str] = ()) -> Group:
    """The tree of `graph`; `part_names` are those of its partitions, in their order."""
    modules = modules_of(graph.nodes)
    everything = tuple(range(len(graph.nodes)))
    if len(graph.parts) < 2:
        children = _folded(everything, modules, 0)
        return Group(label="graph", kind="graph", children=_split(children), nodes=everything)
    parts: list[Group | int] = []
    for index, part in enumerate(graph.parts):
        label = part_names[index] if index < len(part_names) else f"partition {index + 1}"
        inside = _split(_folded(part.nodes, modules, 0))
        parts.append(
            Group(
                label=label,
                kind="partition",
                children=inside,
                nodes=part.nodes,
                provider=part.provider,
            )
        )
    return Group(label="graph", kind="graph", children=_split(parts), nodes=everything)


def _folded(nodes: Sequence[int], modules: Sequence[Module], depth: int) -> list[Group | int]:
    """`nodes`, folded by the part of their module's name at `depth`, in order of execution."""
    members: dict[str, list[int]] = {}
    places: dict[str, int] = {}
    found: list[Group | int] = []
    for index in nodes:
        module = modules[index]
        if len(module) <= depth:
            found.append(index)
            continue
        name = module[depth]
        if name not in members:
            members[name] = []
            places[name] = len(found)
            found.append(index)
        members[name].append(index)
    for name, place in places.items():
        inside = members[name]
        children = _folded(inside, modules, depth + 1)
        if len(inside) == 1:
            found[place] = inside[0]
        elif len(children) == 1 and isinstance(only := children[0], Group):
            found[place] = Group(
                label=f"{name}.{only.label}" if only.kind == "module" else name,
                kind="module",
                children=only.children,
                nodes=only.nodes,
            )
        else:
            found[place] = Group(
                label=name, kind="module", children=_split(children), nodes=tuple(inside)
            )
    return found


def _split(children: Sequence[Group | int]) -> tuple[Group | int, ...]:
    """The children, with runs of nodes folded while there are too many of them."""
    found = list(children)
    while len(found) > MAX_CHILDREN:
        size = max(_RUN, -(-len(found) // MAX_CHILDREN))
        runs = [found[at : at + size] for at in range(0, len(found), size)]
        found = [run[0] if len(run) == 1 else _run_of(run) for run in runs]
    return tuple(found)


def _run_of(children: Sequence[Group | int]) -> Group:
    nodes = sorted(
        index
        for child in children
        for index in ((child,) if isinstance(child, int) else child.nodes)
    )
    first = children[0]
    label = f"nodes {nodes[0] + 1} to {nodes[-1] + 1}"
    provider = first.provider if isinstance(first, Group) else ""
    if any(isinstance(child, Group) and child.kind == "partition" for child in children):
        label, provider = f"{len(children)} partitions", ""
    return Group(
        label=label, kind="run", children=tuple(children), nodes=tuple(nodes), provider=provider
    )
