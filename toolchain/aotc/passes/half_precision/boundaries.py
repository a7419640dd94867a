"""Where values change between float32 and half precision, and nodes that are kept to save casts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aotc.passes.half_precision.typed_graph import MOVING

if TYPE_CHECKING:
    from aotc.passes.half_precision.typed_graph import TypedGraph

# Cheap in float32 too.
_CHEAP: Final = MOVING | {
    "Abs", "Add", "Clip", "Div", "Gelu", "LeakyRelu", "Max", "Min", "Mul", "Neg", "Relu",
    "Sigmoid", "Sqrt", "Sub", "Tanh",
}  # fmt: skip


def is_half(graph: TypedGraph, name: str, kept: set[int]) -> bool:
    """Whether a value is made in half precision; graph inputs are not."""
    index = graph.producer.get(name)
    if index is None or index in kept:
        return False
    position = list(graph.nodes[index].output).index(name)
    return position in graph.slots[index].outputs


def read_in_half(graph: TypedGraph, index: int, name: str, kept: set[int]) -> set[bool]:
    """In which precisions a node reads a value: half (True), float32 (False), or both."""
    if index in kept:
        return {False}
    slots = graph.slots[index].inputs
    found = {at in slots for at, given in enumerate(graph.nodes[index].input) if given == name}
    return found | ({False} if name in graph.captured.get(index, ()) else set())


def casts_of(graph: TypedGraph, name: str, kept: set[int]) -> int:
    """How many casts one value needs: none or one, shared by all that read it."""
    if not graph.is_float(name) or name in graph.constants:
        return 0
    home = is_half(graph, name, kept)
    wanted = {
        precision
        for index in graph.readers.get(name, ())
        for precision in read_in_half(graph, index, name, kept)
    }
    if name in graph.outputs:
        wanted.add(False)
    return int((not home) in wanted)


def saving_nodes(graph: TypedGraph, kept: set[int]) -> set[int]:
    """Cheap nodes beside `kept` ones that take fewer casts in float32 than in half precision."""
    now = set(kept)
    changed = True
    while changed:
        changed = False
        for index, node in enumerate(graph.nodes):
            if index in now or not graph.slots[index] or node.op_type not in _CHEAP:
                continue
            if not _is_beside(graph, index, now):
                continue
            names = {name for name in (*node.input, *node.output) if name}
            before = sum(casts_of(graph, name, now) for name in names)
            if sum(casts_of(graph, name, now | {index}) for name in names) < before:
                now.add(index)
                changed = True
    return now - kept


def _is_beside(graph: TypedGraph, index: int, kept: set[int]) -> bool:
    node = graph.nodes[index]
    before = {graph.producer.get(name) for name in node.input if graph.is_float(name)}
    after = {
        reader
        for name in node.output
        if graph.is_float(name)
        for reader in graph.readers.get(name, ())
    }
    return bool((before | after) & kept)
