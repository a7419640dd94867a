"""Rotary embeddings of queries and keys, each as one `com.microsoft::RotaryEmbedding`.

Cases, as exporters leave them:

1. `x * cos + turned(x) * sin` of (batch, heads, length, width), where `turned(x)` is
   `Concat(-x[half:], x[:half])`; the operands of sums and products in either order.
2. The same, or 3, of the first part of each head: `Concat(rotary(x[:part]), x[part:])`.
3. The standard operator RotaryEmbedding (opset 23).

The operator reads a row of cosines and sines for each position, half as wide as the graph's: that
both halves are equal is proven from the graph.  The rows are those that the graph computes, so the
positions given to it are their numbers: from 0 on where all items of a batch share them, else 0,
1, 2, … over the whole batch.  No number is read back from the GPU, which a CUDA graph would not
allow.  Heads lie side by side in what it reads and writes, which saves the transposes.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from aotc.base.records import record, replace
from aotc.graph.passes.fuse_for_cuda.graph_values import (
    HEADS_FIRST,
    before_heads,
    constant,
    integer,
    is_op,
    made_by,
    only_user,
    part_of,
    permutation,
    replace_value,
    same,
    scaled,
    set_type,
    sizes,
    whole_array,
)
from aotc.graph.passes.fuse_for_cuda.new_nodes import NewNodes
from aotc.spec.providers import MICROSOFT

# Each number of the result is of one number of the first input.
_ELEMENTWISE = ("Cast", "Cos", "Identity", "Neg", "Sin")


@record
class _Half:
    """One of the equal halves of a value: `start`, or a part of it, after the operators of `chain`.

    `start` is a constant whose own halves are equal if `constant`.
    """

    start: ir.Value
    chain: tuple[ir.Node, ...]
    constant: bool


@record
class _Rotary:
    """One rotary embedding: `result` of (batch, heads, length, width), and what it is made of.

    `cos` and `sin` are in rows of half of `rotated`, the width that is turned; with `positions`
    they are a table.  `shared`: all items of a batch have the same rows.
    """

    result: ir.Value
    source: ir.Value
    cos: ir.Value | _Half
    sin: ir.Value | _Half
    rotated: int
    shared: bool = False
    interleaved: bool = False
    positions: ir.Value | None = None


def fuse_rotary(graph: ir.Graph) -> dict[str, int]:
    """Rewrite all of them; returns how many of which kind."""
    found = {"decomposed": 0, "standard": 0, "part of a head": 0}
    writer = _Writer(graph)
    for node in list(graph):
        standard = is_op(node, "RotaryEmbedding")
        match = _standard(node) if standard else _decomposed(node)
        if match is None:
            continue
        whole = _of_whole_head(match)
        writer.rewrite(whole)
        found["standard" if standard else "decomposed"] += 1
        found["part of a head"] += whole is not match
    if any(found.values()):
        graph.sort()
    return {name: count for name, count in found.items() if count}


def _standard(node: ir.Node) -> _Rotary | None:
    source, cos, sin, positions = (*node.inputs, None, None, None, None)[:4]
    known = sizes(source, 4)
    if known is None or not isinstance(known[1], int) or not isinstance(known[3], int):
        return None
    if source is None or cos is None or sin is None:
        return None
    rotated = integer(node, "rotary_embedding_dim", 0) or known[3]
    shared = False
    if positions is None:
        rows = sizes(cos, 3), sizes(sin, 3)
        if rows[0] is None or rows[1] is None or rows[0][0] != rows[1][0]:
            return None
        shared = rows[0][0] == 1
        if not shared and not same(rows[0][0], known[0]):
            return None
    return _Rotary(
        result=node.outputs[0],
        source=source,
        cos=cos,
        sin=sin,
        rotated=rotated,
        shared=shared,
        interleaved=bool(integer(node, "interleaved", 0)),
        positions=positions,
    )


def _decomposed(node: ir.Node) -> _Rotary | None:
    if not is_op(node, "Add"):
        return None
    for plain, other in (node.inputs, tuple(reversed(node.inputs))):
        by_sin = made_by(other, "Mul")
        by_cos = made_by(plain, "Mul")
        if by_sin is None or by_cos is None:
            continue
        for turned, sin in (by_sin.inputs, tuple(reversed(by_sin.inputs))):
            source = _turned(turned)
            if source is None or sin is None or source not in by_cos.inputs:
                continue
            cos = by_cos.inputs[1 if by_cos.inputs[0] is source else 0]
            return _of_parts(node.outputs[0], source, cos, sin)
    return None


def _turned(value: ir.Value | None) -> ir.Value | None:
    """`x`, if `value` is its second half, negated, before its first."""
    node = made_by(value, "Concat")
    if node is None or len(node.inputs) != 2 or integer(node, "axis", 0) not in (-1, 3):
        return None
    negated = made_by(node.inputs[0], "Neg")
    second = part_of(negated.inputs[0]) if negated is not None else None
    first = part_of(node.inputs[1])
    if first is None or second is None or first[0] is not second[0]:
        return None
    known = sizes(first[0], 4)
    width = known[3] if known is not None else None
    if not isinstance(width, int) or width % 2:
        return None
    half = width // 2
    return first[0] if (first[1:], second[1:]) == ((0, half), (half, width)) else None


def _of_parts(
    result: ir.Value, source: ir.Value, cos: ir.Value | None, sin: ir.Value
) -> _Rotary | None:
    known = sizes(source, 4)
    if known is None or cos is None or not isinstance(known[1], int):
        return None
    rotated = known[3]
    assert isinstance(rotated, int)
    rows = [_rows(value, known) for value in (cos, sin)]
    if rows[0] is None or rows[0] != rows[1]:
        return None
    halves = [_half(value) for value in (cos, sin)]
    if halves[0] is None or halves[1] is None:
        return None
    if any(value.dtype != source.dtype for value in (cos, sin)):
        return None
    return _Rotary(
        result=result,
        source=source,
        cos=halves[0],
        sin=halves[1],
        rotated=rotated,
        shared=rows[0],
    )


def _rows(value: ir.Value, source: tuple[int | str, ...]) -> bool | None:
    """Whether rows that are spread over the heads are the same for all items of a batch.

    None if `value` is not one row for each position of `source`, or each of each item.
    """
    rank = len(value.shape) if value.shape is not None else 0
    stated = sizes(value, rank) if 2 <= rank <= 4 else None
    if stated is None:
        return None
    batch, heads, length, width = (1, 1, 1, 1, *stated)[-4:]
    if heads != 1 or not same(length, source[2]) or not same(width, source[3]):
        return None
    if batch == 1:
        return True
    return False if same(batch, source[0]) else None


def _half(value: ir.Value) -> _Half | None:
    """What the equal halves of the last axis are made of; None if they are not proven equal."""
    chain: list[ir.Node] = []
    while True:
        if constant(value) is not None:
            numbers = whole_array(value)
            first, second = np.split(numbers, 2, axis=-1)
            equal = np.array_equal(first, second)
            return _Half(start=value, chain=tuple(chain), constant=True) if equal else None
        node = value.producer()
        if node is None or value.shape is None:
            return None
        last = len(value.shape) - 1
        if is_op(node, "Concat"):
            parts = set(node.inputs)
            if (
                len(node.inputs) != 2
                or len(parts) != 1
                or integer(node, "axis", 0) not in (-1, last)
            ):
                return None
            (start,) = parts
            return _Half(start=start, chain=tuple(chain), constant=False) if start else None
        if any(is_op(node, op_type) for op_type in (*_ELEMENTWISE, "Unsqueeze")):
            before = node.inputs[0]
        else:
            factored = scaled(node)
            before = factored[0] if factored is not None else None
        if before is None:
            return None
        # Rows are read without the axes of 1 before them.
        if not is_op(node, "Unsqueeze"):
            chain.append(node)
        value = before


def _of_whole_head(match: _Rotary) -> _Rotary:
    """`match`, or what it is the first part of: the rest of each head stays."""
    part = part_of(match.source)
    joined = only_user(match.result)
    if part is None or joined is None or not is_op(joined, "Concat") or len(joined.inputs) != 2:
        return match
    rest = part_of(joined.inputs[1])
    whole = sizes(part[0], 4)
    if rest is None or whole is None or rest[0] is not part[0]:
        return match
    if integer(joined, "axis", 0) not in (-1, 3):
        return match
    turned = (sizes(match.source, 4) or ())[3]
    if (part[1:], rest[1:]) != ((0, turned), (turned, whole[3])) or turned != match.rotated:
        return match
    return replace(match, result=joined.outputs[0], source=part[0])


class _Writer:
    """Writes them into one graph; rows and positions that several of them read are made once."""

    def __init__(self, graph: ir.Graph) -> None:
        self._new = NewNodes(graph)
        self._made: dict[tuple[object, ...], ir.Value] = {}

    def rewrite(self, match: _Rotary) -> None:
        batch, heads, length, width = sizes(match.source, 4) or ()
        assert isinstance(heads, int) and isinstance(width, int)
        cos, sin = self._table(match, match.cos), self._table(match, match.sin)
        # In half precision some exporters rotate in float32.
        cast = made_by(match.source, "Cast")
        before = cast.inputs[0] if cast is not None else match.source
        turned = made_by(before, "Transpose")
        inner = turned.inputs[0] if permutation(turned) == HEADS_FIRST and turned else None
        source = match.source
        if inner is not None:
            sides = (batch, length, heads * width)
            beside = heads * width
            source = before_heads(inner, heads) or self._new.reshaped(inner, [0, 0, beside], sides)
            if cast is not None:
                source = self._new.alike(cast, [source])
                source.shape = ir.Shape([side or None for side in sides])
        attributes = {"interleaved": int(match.interleaved)}
        if match.rotated != width:
            attributes |= {"num_heads": heads, "rotary_embedding_dim": match.rotated}
        positions = match.positions or self._positions(match, source, 2 if inner is None else 1)
        inputs = [source, positions, cos, sin]
        node = self._new.node("RotaryEmbedding", inputs, attributes, domain=MICROSOFT)
        old, made = match.result, node.outputs[0]
        set_type(made, source)
        made.shape = source.shape
        if inner is not None:
            back = only_user(old)
            if back is not None and is_op(back, "Cast"):
                old, made = back.outputs[0], self._new.alike(back, [made])
                made.shape = source.shape
            made = self._new.reshaped(made, [0, 0, heads, width], (batch, length, heads, width))
            made = self._new.transposed(made, HEADS_FIRST, (batch, heads, length, width))
        last = old.producer()
        assert last is not None
        self._new.place_before(last)
        replace_value(old, made)

    def _table(self, match: _Rotary, rows: ir.Value | _Half) -> ir.Value:
        """Cosines or sines of (rows, half of what is turned)."""
        if match.positions is not None:
            assert isinstance(rows, ir.Value)
            return rows
        memo = (rows,) if isinstance(rows, ir.Value) else (rows.start, *rows.chain)
        if memo not in self._made:
            value = rows if isinstance(rows, ir.Value) else self._halved(rows)
            width = match.rotated // 2
            self._made[memo] = self._new.reshaped(value, [-1, width], ("", width))
        return self._made[memo]

    def _halved(self, rows: _Half) -> ir.Value:
        value = rows.start
        if rows.constant:
            numbers = np.split(whole_array(value), 2, axis=-1)[0]
            value = self._new.constant(ir.tensor(np.ascontiguousarray(numbers), dtype=value.dtype))
        for node in reversed(rows.chain):
            inputs = [value if item is _main(node) else item for item in node.inputs]
            value = self._new.alike(node, inputs)
        return value

    def _positions(self, match: _Rotary, source: ir.Value, axis: int) -> ir.Value:
        """The number of each position's row; of the first one only, where the others follow it."""
        if match.shared:
            if ("first",) not in self._made:
                self._made["first",] = self._new.numbers([0])
            return self._made["first",]
        memo = ("of batch", match.cos if isinstance(match.cos, ir.Value) else match.cos.start)
        if memo not in self._made:
            both = [self._new.size(source, 0), self._new.size(source, axis)]
            count = self._new.node("Mul", both).outputs[0]
            zero, one = (self._new.number(number, ir.DataType.INT64) for number in (0, 1))
            limit = self._new.node("Squeeze", [count]).outputs[0]
            numbers = self._new.node("Range", [zero, limit, one]).outputs[0]
            shape = self._new.node("Concat", both, {"axis": 0}).outputs[0]
            self._made[memo] = self._new.node("Reshape", [numbers, shape]).outputs[0]
        return self._made[memo]


def _main(node: ir.Node) -> ir.Value | None:
    """The input of a node of a chain that has the halves; others are one number."""
    factored = scaled(node)
    return factored[0] if factored is not None else node.inputs[0]
