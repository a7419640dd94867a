"""Names that stand for a model's own while nodes are made: no made name is one of the model's.

The quantizers of ONNX Runtime name what they make after what it is made for (`w` gives `w_scale`),
and take what has such a name for their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aotc.partitioning.graph import subgraphs_of
from aotc.passes.base import all_names, walk_graphs

if TYPE_CHECKING:
    import onnx


class StandIns:
    """Names by what stands for them: `<3>` for each of a graph; they differ between graphs."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._taken = all_names(model)
        mark = "<"
        while any(mark in name for name in self._taken):
            mark += "<"
        self._mark = mark
        self._pattern = re.compile(re.escape(mark) + r"(\d+)>")
        self._originals: list[str] = []
        self._nodes: dict[str, str] = {}
        self._final: dict[str, str] = {}
        self._values = self._stand(model.graph, {})
        self._left = all_names(model)

    def nodes(self, names: Collection[str]) -> frozenset[str]:
        """What stands for nodes of these names."""
        return frozenset(self._nodes[name] for name in names if name in self._nodes)

    def value(self, name: str) -> str:
        """What stands for a value of the main graph."""
        return self._values.get(name, name)

    def restore(self, model: onnx.ModelProto) -> None:
        """Give `model` its names again, and made names a number where they are in use."""
        for graph in walk_graphs(model):
            _rename(graph, self._restored, self._restored)

    def _fresh(self, name: str) -> str:
        self._originals.append(name)
        return f"{self._mark}{len(self._originals) - 1}>"

    def _stand(self, graph: onnx.GraphProto, around: Mapping[str, str]) -> Mapping[str, str]:
        own: dict[str, str] = {}
        defined = [value.name for value in graph.input]
        defined += [tensor.name for tensor in graph.initializer]
        defined += [name for node in graph.node for name in node.output]
        for name in defined:
            if name and name not in own:
                own[name] = self._fresh(name)
        seen = {**around, **own}
        for node in graph.node:
            if node.name and node.name not in self._nodes:
                self._nodes[node.name] = self._fresh(node.name)
            for attribute in node.attribute:
                for body in subgraphs_of(attribute):
                    self._stand(body, seen)
        _rename(graph, lambda name: seen.get(name, name), lambda name: self._nodes.get(name, name))
        return own

    def _restored(self, name: str) -> str:
        if exact := self._pattern.fullmatch(name):
            return self._originals[int(exact[1])]
        if not name or name in self._left:
            return name
        if name not in self._final:
            wanted = self._pattern.sub(lambda found: self._originals[int(found[1])], name)
            free, number = wanted, 0
            while free in self._taken:
                number += 1
                free = f"{wanted}_{number}"
            self._taken.add(free)
            self._final[name] = free
        return self._final[name]


@contextmanager
def stand_ins(model: onnx.ModelProto) -> Iterator[StandIns]:
    """Within, stand-ins are the names of nodes and values of `model`, in its bodies too.

    Afterwards it has its names again, and what was made has names that nothing else has.
    """
    standing = StandIns(model)
    yield standing
    standing.restore(model)


def _rename(
    graph: onnx.GraphProto, value_name: Callable[[str], str], node_name: Callable[[str], str]
) -> None:
    """Rename in one graph, without its bodies."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.name = value_name(value.name)
    for tensor in graph.initializer:
        tensor.name = value_name(tensor.name)
    for node in graph.node:
        node.name = node_name(node.name)
        for names in (node.input, node.output):
            names[:] = [value_name(name) for name in names]
