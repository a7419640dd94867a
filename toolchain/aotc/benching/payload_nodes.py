"""The payload's names of nodes that ONNX Runtime replaced when the session was created.

Where it gives a node's tensors another layout, it makes a new node.  Convolutions in blocks of
channels are named after the value that they compute, `VALUE_nchwc`; others get the name of the old
node and a number, `NAME_token_7`, and stay the same operator.  Values are read without onnx.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from aotc.contract.manifest.variant import NodePlacement
from aotc.verification.references.protobuf_wire import InMemory, MalformedModel, fields, text

# Field numbers of onnx.proto.
_MODEL_GRAPH: Final = 7
_GRAPH_NODE: Final = 1
_NODE_OUTPUT, _NODE_NAME, _NODE_ATTRIBUTE = 2, 3, 5
_ATTRIBUTE_GRAPH: Final = 6
# ONNX Runtime's, of nodes that it made of others.
_LAYOUT_SUFFIX: Final = "_nchwc"
_COPIED: Final = re.compile(r"(.+)_token_\d+", re.DOTALL)
_MAX_DEPTH: Final = 32


class PayloadNodes:
    """The names of a variant's nodes, for the names that ONNX Runtime's profile has."""

    def __init__(self, model: Path, placed: Iterable[NodePlacement]) -> None:
        """`model` is the variant's ONNX file, `placed` are the nodes of its placement."""
        self._ops = {node.name: node.op for node in placed}
        self._model = model
        self._by_output: dict[str, str] | None = None

    def name_of(self, profiled: str, op_type: str) -> str | None:
        """The payload's name of a profiled node; None if ONNX Runtime made it at load."""
        if profiled in self._ops:
            return profiled
        copied = _COPIED.fullmatch(profiled)
        if copied and self._ops.get(copied[1], "").rpartition("::")[2] == op_type:
            return copied[1]
        if not profiled.endswith(_LAYOUT_SUFFIX):
            return None
        if self._by_output is None:
            self._by_output = _names_by_output(self._model)
        found = self._by_output.get(profiled.removesuffix(_LAYOUT_SUFFIX))
        return found if found in self._ops else None


def _names_by_output(model: Path) -> dict[str, str]:
    """Names of nodes by their outputs; empty where the file cannot be read this way."""
    try:
        source = InMemory(model.read_bytes())
        return {
            output: name
            for number, _, start, length in fields(source, 0, source.size)
            if number == _MODEL_GRAPH
            for output, name in _nodes(source, start, start + length, 0)
        }
    except (MalformedModel, OSError):
        return {}


def _nodes(source: InMemory, start: int, end: int, depth: int) -> Iterator[tuple[str, str]]:
    """Outputs of all nodes of a graph and of its subgraphs, each with its node's name."""
    if depth > _MAX_DEPTH:
        return
    for number, _, node, length in fields(source, start, end):
        if number != _GRAPH_NODE:
            continue
        name, outputs = "", []
        for part, _, at, size in fields(source, node, node + length):
            if part == _NODE_NAME:
                name = text(source, at, size)
            elif part == _NODE_OUTPUT:
                outputs.append(text(source, at, size))
            elif part == _NODE_ATTRIBUTE:
                for item, _, graph, count in fields(source, at, at + size):
                    if item == _ATTRIBUTE_GRAPH:
                        yield from _nodes(source, graph, graph + count, depth + 1)
        yield from ((output, name) for output in outputs)
