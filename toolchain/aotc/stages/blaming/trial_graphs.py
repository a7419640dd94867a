"""Graphs of a variant with some more nodes kept in float32, as a search tries them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import onnx

from aotc.contract.codec.parsing import Json
from aotc.graphs.source_nodes import covered_nodes
from aotc.passes.base import walk_nodes
from aotc.records import record


@record
class TrialGraph:
    """One graph on disk, with the folder of its external data.

    `changed` are the nodes of the imported graph, by name and in its order, that compute in the
    lower precision in it: those that can be kept besides.  Without any it is the graph in float32.
    """

    model: Path
    weights: Path
    changed: tuple[str, ...]


# Writes the graph in which the named nodes of the imported graph stay in float32, into a folder.
Writer = Callable[[Json, frozenset[str], Path], TrialGraph]


def changed_nodes(
    source: onnx.GraphProto,
    rewritten: onnx.GraphProto,
    changed: Iterable[onnx.NodeProto],
    *,
    not_these: Collection[str] = (),
) -> tuple[str, ...]:
    """The nodes of `source` that stand for the nodes `changed` of `rewritten`, one for each.

    Of several, it is the one of the same operator, else the last, which makes the value.  A node is
    left out if it stands for one of `not_these`.
    """
    covered = covered_nodes(source, rewritten)
    nodes = {node.name: (index, node.op_type) for index, node in enumerate(_walk(source))}
    left = frozenset(not_these)
    found = set()
    for node in changed:
        names = covered.get(node.name, ())
        if names and not left.intersection(names):
            alike = [name for name in names if nodes[name][1] == node.op_type]
            found.add((alike or names)[-1])
    return tuple(sorted(found, key=lambda name: nodes[name][0]))


def _walk(graph: onnx.GraphProto) -> Iterable[onnx.NodeProto]:
    return walk_nodes(onnx.ModelProto(graph=graph))
