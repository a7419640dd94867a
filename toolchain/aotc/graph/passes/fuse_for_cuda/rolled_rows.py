"""Rolled images, and windows cut from them, as one Gather of rows; pads of nothing go.

Networks of shifted windows roll an image along both sides, cut it into windows, and take both back.
Exporters write a roll of one side as two Slices and a Concat, which copy everything twice, and what
cuts windows as a Transpose.  All of these move rows of channels within each item of a batch: one
Gather with constant indices moves each row once.

Taken are (batch, sizes that are known, channels), with a roll among what moves them.  The order of
rows is found by moving their numbers in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from aotc.base.records import record
from aotc.graph.passes.fuse_for_cuda.graph_values import (
    array,
    integer,
    is_op,
    made_by,
    only_user,
    part_along,
    permutation,
    replace_value,
    same,
    set_type,
    sizes,
)
from aotc.graph.passes.fuse_for_cuda.new_nodes import NewNodes

_Numbers = np.ndarray
_ITEMS = 2


@record
class _Step:
    """A node that moves rows of `source`; `move` does the same with their numbers."""

    node: ir.Node
    source: ir.Value
    rolls: bool
    move: Callable[[_Numbers], _Numbers]


def gather_rolled_rows(graph: ir.Graph) -> dict[str, int]:
    """Write what rolls rows, and moves them before and after, as a Gather; returns how many."""
    found = {"pad": 0, "rolled": 0}
    for node in list(graph):
        if is_op(node, "Pad") and _pads_nothing(node):
            assert node.inputs[0] is not None
            replace_value(node.outputs[0], node.inputs[0])
            found["pad"] += 1
    new, done = NewNodes(graph), set[ir.Node]()
    for node in list(graph):
        step = _step_of(node) if is_op(node, "Concat") else None
        if step is None or node in done:
            continue
        steps = _chain(step)
        done |= {each.node for each in steps}
        found["rolled"] += _gather(steps, new)
    if any(found.values()):
        graph.sort()
    return {name: count for name, count in found.items() if count}


def _pads_nothing(node: ir.Node) -> bool:
    source, result = node.inputs[0], node.outputs[0]
    numbers = array(node.inputs[1]) if len(node.inputs) > 1 else None
    known = source is not None and source.shape is not None and not result.is_graph_output()
    return known and isinstance(numbers, np.ndarray) and not numbers.any()


def _step_of(node: ir.Node) -> _Step | None:
    """How a node moves rows, if it does; the last axis stays where it is."""
    source, result = node.inputs[0], node.outputs[0]
    if source is None or source.shape is None or result.shape is None:
        return None
    rank = len(source.shape)
    if is_op(node, "Reshape"):
        before, after = sizes(source, rank), sizes(result, len(result.shape))
        if not before or not after or not same(before[-1], after[-1]):
            return None
        inner = [size for size in after[1:-1] if isinstance(size, int)]
        if len(inner) != len(after) - 2 or 0 in inner:
            return None
        return _Step(
            node=node,
            source=source,
            rolls=False,
            move=lambda rows: rows.reshape([-1, *inner, 1]),
        )
    if is_op(node, "Transpose"):
        axes = permutation(node)
        if not axes or axes[-1] != rank - 1:
            return None
        return _Step(node=node, source=source, rolls=False, move=lambda rows: rows.transpose(axes))
    return _roll(node) if is_op(node, "Concat") else None


def _roll(node: ir.Node) -> _Step | None:
    """The Concat of what lies behind an index along one axis, and what lies before it."""
    halves = [made_by(value, "Slice") for value in node.inputs]
    if len(halves) != 2 or halves[0] is None or halves[1] is None:
        return None
    source = halves[0].inputs[0]
    if source is None or source is not halves[1].inputs[0] or source.shape is None:
        return None
    rank = len(source.shape)
    axis = integer(node, "axis", 0) % rank
    size = (sizes(source, rank) or ("",) * rank)[axis]
    behind, before = part_along(halves[0], axis), part_along(halves[1], axis)
    if behind is None or before is None or not 0 < axis < rank - 1:
        return None
    first = behind[0]
    if behind != (first, size) or before != (0, first):
        return None
    return _Step(
        node=node, source=source, rolls=True, move=lambda rows: np.roll(rows, -first, axis)
    )


def _chain(roll: _Step) -> list[_Step]:
    """What moves rows before and after a roll, where nothing else reads what is between."""
    found = [roll]
    while (made := found[0].source.producer()) is not None:
        before = _step_of(made)
        if before is None or not _is_read_by(found[0], found[0].source):
            break
        # Windows are more items than images.
        if _rows(before.source) is None or not same(_items(before.source), _items(roll.source)):
            break
        found.insert(0, before)
    while (after := _reader(found[-1].node.outputs[0])) is not None:
        found.append(after)
    return found


def _items(value: ir.Value) -> int | str:
    assert value.shape is not None
    return (sizes(value, len(value.shape)) or ("",))[0]


def _rows(value: ir.Value) -> tuple[int, int] | None:
    """The number of rows of an item, and their channels, of (batch, known sizes, channels)."""
    known = sizes(value, len(value.shape)) if value.shape is not None else None
    if known is None or len(known) < 3:
        return None
    stated = [size for size in known[1:] if isinstance(size, int) and size]
    return (math.prod(stated[:-1]), stated[-1]) if len(stated) == len(known) - 1 else None


def _is_read_by(step: _Step, value: ir.Value) -> bool:
    """Whether only a step reads a value: a roll does by two Slices."""
    readers = {usage.node for usage in value.uses()}
    halves = {half.producer() for half in step.node.inputs if half is not None}
    own = halves if step.rolls else {step.node}
    return readers == own and not value.is_graph_output()


def _reader(value: ir.Value) -> _Step | None:
    """The step that alone reads a value."""
    first = next((usage.node for usage in value.uses()), None)
    if first is None or value.is_graph_output():
        return None
    node = only_user(first.outputs[0]) if is_op(first, "Slice") else first
    step = _step_of(node) if node is not None and node.graph is value.graph else None
    if step is None or step.source is not value or not _is_read_by(step, value):
        return None
    return step


def _gather(steps: list[_Step], new: NewNodes) -> bool:
    """One Gather in place of as many of the steps as keep the items of a batch apart."""
    source = steps[0].source
    known = _rows(source)
    if known is None:
        return False
    count, channels = known
    assert source.shape is not None
    numbers = np.arange(_ITEMS * count).reshape(_ITEMS, *_inner(source), 1)
    order, last = None, 0
    for place, step in enumerate(steps):
        numbers = step.move(numbers)
        flat = numbers.reshape(_ITEMS, count)
        apart = all((flat[at] == flat[0] + at * count).all() for at in range(_ITEMS))
        rolled = any(each.rolls for each in steps[: place + 1])
        if rolled and apart and sorted(flat[0]) == list(range(count)):
            order, last = flat[0], place
    if order is None:
        return False
    end = steps[last].node.outputs[0]
    assert end.shape is not None
    rows = new.reshaped(source, [0, count, channels], ["", count, channels])
    gathered = new.node("Gather", [rows, new.numbers(order.tolist())], {"axis": 1}).outputs[0]
    set_type(gathered, source)
    gathered.shape = ir.Shape([source.shape[0], count, channels])
    result = new.reshaped(gathered, [-1, *_inner(end), channels])
    result.shape = end.shape
    new.place_before(steps[last].node)
    replace_value(end, result)
    return True


def _inner(value: ir.Value) -> list[int]:
    """The sizes between the first and the last."""
    assert value.shape is not None
    return [size for size in value.shape[1:-1] if isinstance(size, int)]
