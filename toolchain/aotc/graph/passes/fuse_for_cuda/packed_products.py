"""Packed products, of which only parts are read, as one product for each part.

A linear layer that makes queries, keys and values at once, or both halves of a gated unit, is one
product with constant weights [and a bias].  What cuts it up writes everything once more; products
with the columns of each part write each part where it is read.

Cases, each cut by a Split, by Slices, or by Gathers of one index:

1. The last axis of the product.
2. One of the axes that a Reshape makes of the last: (…, 3, heads, width), (…, heads, 3 x width).
3. The same after Transposes, and after axes of 1 that come and go.

An axis of one index that is dropped after the cut is not made.  The columns are taken by Gathers of
constants, which ONNX Runtime's optimizer folds: only its results are stored.

Left as they are: a product whose whole result is read; one that has weights which others read, so
that these would be stored twice; one with a single row for each item of the batch, as its result is
small and each product reads anew what makes it; and parts too narrow for tensor cores.  But one
narrow part, such as gates of a few columns beside wide ones, is made with some columns more, which
nothing reads.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import onnx_ir as ir

from aotc.base.records import record
from aotc.graph.passes.fuse_for_cuda.graph_values import (
    array,
    integer,
    is_constant,
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

# Tensor cores multiply half precision in such steps; other widths take slower kernels.
_STEP = 8
# Since then Slice has its starts and ends as inputs.
_ENDS_ARE_INPUTS_SINCE = 10


@record
class _Part:
    """The indices of one part along the axis that is cut; `result` lacks the axis if `dropped`."""

    result: ir.Value
    first: int
    after: int
    dropped: bool = False


@record
class _Packed:
    """A product, and how it is cut.

    Its last axis is split into `dims`; the axes of what is cut are in the order `axes`, and `axis`
    is the one of them, counted before they are put in this order.
    """

    product: ir.Node
    total: ir.Value
    bias: ir.Value | None
    dims: tuple[int, ...]
    axes: tuple[int, ...]
    axis: int
    kind: str
    parts: tuple[_Part, ...]

    def is_narrow(self, part: _Part) -> bool:
        """Whether its columns are no multiple of what tensor cores take."""
        return bool((part.after - part.first) * self.width % _STEP)

    @property
    def width(self) -> int:
        """The columns of one index along the axis that is cut."""
        return math.prod(self.dims) // self.dims[self.axis - len(self.axes) + len(self.dims)]

    @property
    def cuts(self) -> tuple[object, ...]:
        """What two products must have in common to share the weights of their parts."""
        ranges = sorted({(part.first, part.after) for part in self.parts})
        return (_is_turned(self.product.inputs[1]), self.dims, self.axis, *ranges)


def divide_products(graph: ir.Graph) -> dict[str, int]:
    """Write a product for each part of a packed one; returns how many by what cut them."""
    by_weights: dict[ir.Value, list[_Packed]] = {}
    for node in graph:
        found = _packed(node)
        if found is not None:
            by_weights.setdefault(_stored(node.inputs[1]), []).append(found)
    writer, count = _Writer(graph), Counter[str]()
    for weights, packed in by_weights.items():
        alone = _readers(weights) <= {item.product for item in packed}
        if not alone or len({item.cuts for item in packed}) > 1:
            continue
        for item in packed:
            writer.divide(item)
            count[item.kind.lower()] += 1
    if count:
        graph.sort()
    return dict(count)


def _stored(value: ir.Value | None) -> ir.Value:
    """The initializer of a constant."""
    node = value.producer() if value is not None else None
    stored = value if node is None else node.inputs[0]
    assert stored is not None
    return stored


def _is_turned(value: ir.Value | None) -> bool:
    """Whether a constant is a transposed initializer."""
    return value is not None and value.producer() is not None


def _readers(weights: ir.Value) -> set[ir.Node]:
    """What reads an initializer, transposed or not."""
    found = set()
    for usage in weights.uses():
        turned = is_op(usage.node, "Transpose")
        found |= {one.node for one in usage.node.outputs[0].uses()} if turned else {usage.node}
    return found


def _packed(node: ir.Node) -> _Packed | None:
    if not is_op(node, "MatMul") or not is_constant(node.inputs[1]):
        return None
    if made_by(node.inputs[1], "Gather") is not None:
        return None
    total = node.outputs[0]
    rank = len(total.shape) if total.shape is not None else 0
    known = sizes(node.inputs[1], 2)
    width = known[1] if known is not None else None
    if not isinstance(width, int) or sizes(node.inputs[0], rank) is None:
        return None
    lead = (sizes(total, rank) or ())[:-1]
    if all(size == 1 for size in lead[1:]):
        return None
    added, bias = only_user(total), None
    if added is not None and is_op(added, "Add"):
        bias = added.inputs[1 if added.inputs[0] is total else 0]
        total = added.outputs[0]
        if not is_constant(bias) or sizes(bias, 1) != (width,):
            return None
    dims, end = _split(total, lead, width)
    axes, end = _moved(end, len(lead) + len(dims))
    cut = _cut(end, axes, len(lead))
    if cut is None:
        return None
    axis, kind, parts = cut
    packed = _Packed(
        product=node,
        total=total,
        bias=bias,
        dims=dims,
        axes=axes,
        axis=axis,
        kind=kind,
        parts=parts,
    )
    each = {(part.first, part.after): packed.is_narrow(part) for part in parts}
    widths = [(after - first) * packed.width for first, after in each]
    if 0 in widths or sum(widths) > width:
        return None
    if any(each.values()) and not _is_worth_more_columns(packed, widths):
        return None
    return packed


def _is_worth_more_columns(packed: _Packed, widths: list[int]) -> bool:
    """Whether one narrow part, of the last axis itself, stands beside wider ones."""
    graph = packed.product.graph
    if graph is None or graph.opset_imports.get("", 1) < _ENDS_ARE_INPUTS_SINCE:
        return False
    whole = len(packed.dims) == 1 and not any(part.dropped for part in packed.parts)
    narrow = [width for width in widths if width % _STEP]
    return whole and len(narrow) == 1 and narrow[0] * _STEP <= sum(widths)


def _split(
    total: ir.Value, lead: tuple[int | str, ...], width: int
) -> tuple[tuple[int, ...], ir.Value]:
    """What the last axis is split into, and the value that is so; the axis itself if it is not."""
    whole = ((width,), total)
    node = only_user(total)
    if node is None or not is_op(node, "Reshape"):
        return whole
    result = node.outputs[0]
    after = sizes(result, len(result.shape)) if result.shape is not None else None
    if after is None or len(after) <= len(lead) + 1:
        return whole
    kept = sum(map(same, lead, after))
    dims = tuple(size for size in after[len(lead) :] if isinstance(size, int))
    # One size follows from all others.
    if kept < len(lead) - 1 or len(dims) < len(after) - len(lead) or math.prod(dims) != width:
        return whole
    return dims, result


def _moved(value: ir.Value, rank: int) -> tuple[tuple[int, ...], ir.Value]:
    """The order in which axes are after Transposes, and the value that has them so.

    Axes of 1 may come and go between.
    """
    axes: list[int | None] = list(range(rank))
    found = (tuple(range(rank)), value)
    while (node := only_user(value)) is not None:
        given = _stated_axes(node)
        if is_op(node, "Transpose"):
            axes = [axes[axis] for axis in permutation(node) or reversed(range(len(axes)))]
        elif is_op(node, "Unsqueeze") and given is not None:
            after = len(axes) + len(given)
            old = iter(axes)
            new = {axis % after for axis in given}
            axes = [None if at in new else next(old) for at in range(after)]
        elif is_op(node, "Squeeze") and given is not None:
            gone = {axis % len(axes) for axis in given}
            if any(axes[at] is not None for at in gone):
                return found
            axes = [axis for at, axis in enumerate(axes) if at not in gone]
        else:
            return found
        value = node.outputs[0]
        stated = tuple(axis for axis in axes if axis is not None)
        if len(stated) == len(axes):
            found = (stated, value)
    return found


def _stated_axes(node: ir.Node) -> list[int] | None:
    """The axes of a Squeeze or Unsqueeze, which are an input since opset 13."""
    given = array(node.inputs[1]) if len(node.inputs) > 1 else None
    return [int(axis) for axis in given.ravel()] if isinstance(given, np.ndarray) else None


def _cut(
    value: ir.Value, axes: tuple[int, ...], lead: int
) -> tuple[int, str, tuple[_Part, ...]] | None:
    """The axis that is cut, by what, and the parts; None if `value` is read in any other way."""
    if value.is_graph_output():
        return None
    at, kinds, parts = set[int](), set[str](), list[_Part]()
    for usage in value.uses():
        node = usage.node
        if node.graph is not value.graph or usage.idx:
            return None
        found = _parts_of(node, len(axes))
        if found is None:
            return None
        at.add(found[0])
        kinds.add(node.op_type)
        parts += [_without_axis(part, found[0]) for part in found[1]]
    if len(at) != 1 or not parts:
        return None
    axis = axes[at.pop()]
    return (axis, min(kinds), tuple(parts)) if axis >= lead else None


def _parts_of(node: ir.Node, rank: int) -> tuple[int, list[_Part]] | None:
    """The axis along which a node cuts its first input, and its parts that are read."""
    if is_op(node, "Split"):
        axis, start, found = integer(node, "axis", 0) % rank, 0, []
        for output in node.outputs:
            size = (sizes(output, rank) or ("",) * rank)[axis]
            if not isinstance(size, int):
                return None
            if output.uses() or output.is_graph_output():
                found.append(_Part(result=output, first=start, after=start + size))
            start += size
        return axis, found
    if is_op(node, "Slice"):
        for axis in range(rank):
            if (taken := part_along(node, axis)) is not None:
                return axis, [_Part(result=node.outputs[0], first=taken[0], after=taken[1])]
    if is_op(node, "Gather"):
        axis, index = integer(node, "axis", 0) % rank, array(node.inputs[1])
        size = (sizes(node.inputs[0], rank) or ("",) * rank)[axis]
        if isinstance(index, np.ndarray) and index.ndim == 0 and isinstance(size, int):
            first = int(index) % size
            return axis, [_Part(result=node.outputs[0], first=first, after=first + 1, dropped=True)]
    return None


def _without_axis(part: _Part, axis: int) -> _Part:
    """The part after a Squeeze of the axis, if that alone reads it."""
    user = only_user(part.result)
    if part.dropped or user is None or not is_op(user, "Squeeze") or part.result.shape is None:
        return part
    given = _stated_axes(user)
    if given is None or [item % len(part.result.shape) for item in given] != [axis]:
        return part
    return _Part(result=user.outputs[0], first=part.first, after=part.after, dropped=True)


def _alike(one: ir.Value, other: ir.Value) -> bool:
    """Whether two values with the same elements have the same shape; of `other` the last is known.

    One more size follows from all others.
    """
    assert other.shape is not None
    rank = len(other.shape)
    known, wanted = sizes(one, rank), sizes(other, rank)
    if known is None or wanted is None or known[-1] != wanted[-1]:
        return False
    return sum(map(same, known[:-1], wanted[:-1])) >= rank - 2


class _Writer:
    """Writes the parts into one graph; products that share weights share those of their parts."""

    def __init__(self, graph: ir.Graph) -> None:
        self._new = NewNodes(graph)
        self._taken: dict[tuple[object, ...], ir.Value] = {}

    def divide(self, packed: _Packed) -> None:
        """A product for each part in place of the packed one."""
        made = dict[tuple[int, int], ir.Value]()
        ends = []
        for part in packed.parts:
            place = (part.first, part.after)
            if place not in made:
                made[place] = self._product(packed, part)
            ends += self._ends(packed, part, made[place])
        self._new.place_before(packed.product)
        for old, new in ends:
            # A value of the model keeps its name: so it is known what stands for what.
            if old.name and not (old.is_graph_output() or new in made.values()):
                old.name, new.name = f"{old.name}_undivided", old.name
            replace_value(old, new)

    def _product(self, packed: _Packed, part: _Part) -> ir.Value:
        """Of (…, columns of the part)."""
        source, weights = packed.product.inputs
        assert source is not None and weights is not None
        lead = self._lead(packed)
        columns = np.arange(math.prod(packed.dims)).reshape(packed.dims)
        taken = columns.take(range(part.first, part.after), axis=packed.axis - len(lead)).ravel()
        if packed.is_narrow(part):
            taken = np.pad(taken, (0, -len(taken) % _STEP), mode="edge")
        result = self._new.alike(packed.product, [source, self._columns(weights, taken)])
        result.shape = ir.Shape([*lead, len(taken)])
        if packed.bias is not None:
            bias = self._columns(packed.bias, taken)
            result = self._new.node("Add", [result, bias]).outputs[0]
            set_type(result, packed.total)
            result.shape = ir.Shape([*lead, len(taken)])
        return result

    def _lead(self, packed: _Packed) -> list[int | ir.SymbolicDim]:
        shape = packed.product.outputs[0].shape
        assert shape is not None
        return list(shape[:-1])

    def _columns(self, value: ir.Value, taken: np.ndarray) -> ir.Value:
        """Some columns of a constant."""
        memo = (_stored(value), _is_turned(value), taken.tobytes())
        if memo not in self._taken:
            numbers = self._new.numbers(taken.tolist())
            result = self._new.node("Gather", [value, numbers], {"axis": -1}).outputs[0]
            set_type(result, value)
            assert value.shape is not None
            result.shape = ir.Shape([*value.shape[:-1], len(taken)])
            self._taken[memo] = result
        return self._taken[memo]

    def _ends(
        self, packed: _Packed, part: _Part, value: ir.Value
    ) -> list[tuple[ir.Value, ir.Value]]:
        """What is replaced by the product of a part, and what by."""
        if packed.is_narrow(part):
            return self._slices(packed, part, value)
        return [self._end(packed, part, value)]

    def _slices(
        self, packed: _Packed, part: _Part, value: ir.Value
    ) -> list[tuple[ir.Value, ir.Value]]:
        """Slices of a narrow part's product, which has more columns: of the part, and its own."""
        size = part.after - part.first
        shape = [*self._lead(packed), -(-size // _STEP) * _STEP]
        if list(packed.axes) != sorted(packed.axes):
            value = self._new.transposed(value, packed.axes)
            shape = [shape[axis] for axis in packed.axes]
            value.shape = ir.Shape(shape)
        at = packed.axes.index(packed.axis)

        def taken(first: int, after: int, old: ir.Value) -> tuple[ir.Value, ir.Value]:
            ends = [self._new.numbers([number]) for number in (first, after, at)]
            result = self._new.node("Slice", [value, *ends]).outputs[0]
            set_type(result, old)
            result.shape = ir.Shape([*shape[:at], after - first, *shape[at + 1 :]])
            return old, result

        readers = [use.node for use in part.result.uses() if not use.idx]
        # What a graph of control flow makes stays its own.
        here = [is_op(node, "Slice") and node.graph is part.result.graph for node in readers]
        ranges = [
            part_along(node, at) if is_here else None
            for node, is_here in zip(readers, here, strict=True)
        ]
        own = [
            taken(*each, node.outputs[0])
            for node, each in zip(readers, ranges, strict=True)
            if each
        ]
        if len(own) == len(part.result.uses()) and not part.result.is_graph_output():
            return own
        return [taken(0, size, part.result)]

    def _end(self, packed: _Packed, part: _Part, value: ir.Value) -> tuple[ir.Value, ir.Value]:
        """What is replaced by the product of a wide part, and what by."""
        lead = len(self._lead(packed))
        shape: list[int | ir.SymbolicDim] = [*self._lead(packed), *packed.dims]
        shape[packed.axis] = part.after - part.first
        order = list(packed.axes)
        if part.dropped:
            del shape[packed.axis]
            order = [axis - (axis > packed.axis) for axis in order if axis != packed.axis]
        if order == sorted(order):
            joined = only_user(part.result)
            if joined is not None and is_op(joined, "Reshape") and _alike(joined.outputs[0], value):
                return joined.outputs[0], value
        if len(shape) > lead + 1:
            split = [size for size in shape[lead:] if isinstance(size, int)]
            value = self._new.reshaped(value, [0] * lead + split)
            value.shape = ir.Shape(shape)
        if order != sorted(order):
            value = self._new.transposed(value, order)
            value.shape = ir.Shape([shape[axis] for axis in order])
        return part.result, value
