"""The tree of a drawn graph: partitions, modules, runs of nodes, nodes.

A group that holds one thing alone is that thing, so that each click shows something new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Annotated, Final, Literal

from aotc.drawing.graph_reading import DrawnGraph
from aotc.drawing.module_names import modules_of
from aotc.records import record

# More things than this side by side are folded into runs.
MAX_CHILDREN: Final = 40
_RUN: Final = 16
# Of more nodes beside modules, those in a row are folded into a run.
MAX_LOOSE: Final = 8
_MAX_RETURNS: Final = 2


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
    folder = _Folder(graph)
    everything = tuple(range(len(graph.nodes)))
    if len(graph.parts) < 2:
        children = folder.fold(everything, 0)
        return Group(label="graph", kind="graph", children=_split(children), nodes=everything)
    parts: list[Group | int] = []
    for index, part in enumerate(graph.parts):
        label = part_names[index] if index < len(part_names) else f"partition {index + 1}"
        parts.append(
            Group(
                label=label,
                kind="partition",
                children=_split(folder.fold(part.nodes, 0)),
                nodes=part.nodes,
                provider=part.provider,
            )
        )
    return Group(label="graph", kind="graph", children=_split(parts), nodes=everything)


class _Folder:
    """Folds nodes of one graph by their modules."""

    def __init__(self, graph: DrawnGraph) -> None:
        self.modules = modules_of(graph.nodes)
        producers = {value: i for i, node in enumerate(graph.nodes) for value in node.outputs}
        self.before = [
            sorted({producers[value] for value in node.inputs if value in producers})
            for node in graph.nodes
        ]

    def fold(self, nodes: Sequence[int], depth: int) -> list[Group | int]:
        """`nodes`, folded by the part of their module's name at `depth`, in execution order."""
        names = {
            index: self.modules[index][depth] for index in nodes if len(self.modules[index]) > depth
        }
        passes = self._passes(nodes, names)
        members: dict[tuple[str, int], list[int]] = {}
        places: dict[tuple[str, int], int] = {}
        found: list[Group | int] = []
        for index in nodes:
            if index not in names:
                found.append(index)
                continue
            key = names[index], passes[index]
            if key not in members:
                members[key] = []
                places[key] = len(found)
                found.append(index)
            members[key].append(index)
        for key, place in places.items():
            found[place] = self._module(*key, members[key], depth)
        return found

    def _module(self, name: str, number: int, inside: list[int], depth: int) -> Group | int:
        if len(inside) == 1:
            return inside[0]
        label = f"{name} ({number + 1})" if number else name
        children = self.fold(inside, depth + 1)
        if len(children) == 1 and isinstance(only := children[0], Group):
            if only.kind == "module":
                label = f"{label}.{only.label}"
            return Group(label=label, kind="module", children=only.children, nodes=only.nodes)
        return Group(label=label, kind="module", children=_split(children), nodes=tuple(inside))

    def _passes(self, nodes: Sequence[int], names: Mapping[int, str]) -> dict[int, int]:
        """How often the way to each node has left its module and come back; 0 if never.

        A module that is drawn as one box although it is left and entered again has edges upwards:
        so are tied weights, which the first and the last node of a network read.  Modules that are
        entered often stay whole: their names tell more than the order.
        """
        inside = set(nodes)
        seen: dict[int, dict[str, int]] = {}
        found: dict[int, int] = {}
        most: dict[str, int] = {}
        for index in nodes:
            name = names.get(index)
            above: dict[str, int] = {}
            number = 0
            for source in self.before[index]:
                if source not in inside or source not in seen:
                    continue
                for other, count in seen[source].items():
                    above[other] = max(above.get(other, 0), count)
                if name is not None and name in seen[source]:
                    returned = names.get(source) != name
                    number = max(number, seen[source][name] + returned)
            if name is not None:
                above[name] = max(above.get(name, 0), number)
                found[index] = number
                most[name] = max(most.get(name, 0), number)
            seen[index] = above
        return {
            index: number if most[names[index]] <= _MAX_RETURNS else 0
            for index, number in found.items()
        }


def _split(children: Sequence[Group | int]) -> tuple[Group | int, ...]:
    """The children, with runs folded: of nodes beside modules, and where there are too many."""
    found = list(children)
    loose = sum(isinstance(child, int) for child in found)
    if MAX_LOOSE < loose < len(found):
        found = []
        for alone, run in groupby(children, key=lambda child: isinstance(child, int)):
            members = list(run)
            found += [_run_of(members)] if alone and len(members) > 2 else members
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
    label = f"nodes {nodes[0] + 1} to {nodes[-1] + 1}"
    if any(isinstance(child, Group) and child.kind == "partition" for child in children):
        label = f"{len(children)} partitions"
    return Group(label=label, kind="run", children=tuple(children), nodes=tuple(nodes))
