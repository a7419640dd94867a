"""Each attention that is found, as one operator, with its products where they can be packed.

Queries, keys and values of `com.microsoft::MultiHeadAttention` are of (batch, length, heads x
width): the Reshape and Transpose around an attention go.  Keys and values of the past stay inputs,
those of the present become outputs.  A mask becomes what is added to the scores, in their type:
`true` is 0, `false` the lowest number.  With it a row without any `true` is the mean of the values,
as exporters' own operators make it; the standard operator Attention makes it 0, which then is done
by a product.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from aotc.base.records import record
from aotc.graph.passes.fuse_for_cuda.attention import Core, Mask, core_at
from aotc.graph.passes.fuse_for_cuda.graph_values import (
    HEADS_FIRST,
    array,
    before_heads,
    depends_on,
    is_constant,
    is_op,
    lowest,
    made_by,
    only_user,
    permutation,
    replace_value,
    same,
    scaled,
    set_type,
    sizes,
)
from aotc.graph.passes.fuse_for_cuda.new_nodes import NewNodes
from aotc.spec.providers import MICROSOFT


@record
class _Flat:
    """A value of (batch, length, heads x width), and a factor that was taken from it."""

    value: ir.Value
    factor: float = 1.0


class Fuser:
    """Rewrites the attentions of one graph; masks that several of them read are made once."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._new = NewNodes(graph)
        self._masks: dict[tuple[object, ...], ir.Value] = {}

    def run(self) -> dict[str, int]:
        """Rewrite all of them; returns how many of which kind."""
        found = {"standard": 0, "decomposed": 0, "with past": 0, "grouped": 0, "idle masks": 0}
        for node in list(self._graph):
            core = core_at(node)
            if core is None:
                continue
            standard = is_op(node, "Attention")
            past = self._rewrite(core)
            found["standard" if standard else "decomposed"] += 1
            found["with past"] += past
            found["grouped"] += core.group > 1
            found["idle masks"] += core.idle_masks
        if any(found.values()):
            self._graph.sort()
        return {name: count for name, count in found.items() if count}

    def _rewrite(self, core: Core) -> bool:
        query = self._flat(core.query, core.heads, factor=True)
        bias = self._bias(core, query.value)
        scale, past, heads = core.scale * query.factor, None, core.heads // core.group
        if core.group > 1:
            source = self._grouped(query.value, core)
            bias = self._for_group(bias, core.group) if bias is not None else None
            key, value = _fewer(core, heads)
        else:
            source = query.value
            past = _past(core, [source, *([bias] if bias is not None else [])])
            flat_key, value = self._keys_and_values(core, past)
            key, scale = flat_key.value, scale * flat_key.factor
        held = [past[0].inputs[0], past[1].inputs[0]] if past is not None else []
        attributes: dict[str, object] = {"num_heads": heads}
        width = sizes(core.query, 4) or ()
        if not math.isclose(scale, 1 / math.sqrt(float(width[3])), rel_tol=1e-6):
            attributes["scale"] = scale
        if core.causal:
            attributes["unidirectional"] = 1
        inputs = [source, key, value, None, None, bias, *held]
        while inputs[-1] is None:
            inputs.pop()
        outputs = 1 if past is None else 3
        node = self._new.node("MultiHeadAttention", inputs, attributes, outputs, domain=MICROSOFT)
        result = node.outputs[0]
        set_type(result, core.query)
        if core.group > 1:
            result = self._ungrouped(result, core)
        values = sizes(core.value, 4) or ()
        result.shape = ir.Shape(
            [core.query.shape[0], core.query.shape[2], core.heads * int(values[3])]  # type: ignore[index]
        )
        if core.zero_rows is not None:
            shape = result.shape
            factors = self._row_factor(core.zero_rows, result)
            result = self._new.node("Mul", [result, factors]).outputs[0]
            set_type(result, core.query)
            result.shape = shape
        ends = [(core.node, *self._end(core, result))]
        if past is not None:
            ends += [(past[0], past[0].outputs[0], node.outputs[1])]
            ends += [(past[1], past[1].outputs[0], node.outputs[2])]
        self._new.place_before(core.node)
        for _, old, new in ends:
            replace_value(old, new)
        return past is not None

    def _keys_and_values(
        self, core: Core, past: tuple[ir.Node, ir.Node] | None
    ) -> tuple[_Flat, ir.Value]:
        """With heads side by side; of new positions only, if there is a past."""
        new_key, new_value = core.key, core.value
        if past is not None:
            new_key, new_value = _input(past[0], 1), _input(past[1], 1)
        # What becomes part of the present keeps its factor.
        if core.split_keys:
            key = self._merged_heads(new_key, core.heads, factor=True)
        else:
            key = self._flat(new_key, core.heads, factor=past is None)
        return key, self._flat(new_value, core.heads).value

    # A group of queries reads the same keys. Its heads become rows: (batch, group x length, fewer
    # heads x width), so that keys and values are read as they are.

    def _grouped(self, query: ir.Value, core: Core) -> ir.Value:
        batch, heads, _, width = sizes(core.query, 4) or ()
        assert isinstance(heads, int) and isinstance(width, int)
        split = self._new.reshaped(query, [0, -1, core.group, width])
        turned = self._new.transposed(split, HEADS_FIRST)
        fewer = heads // core.group * width
        return self._new.reshaped(turned, [0, -1, fewer], (batch, "", fewer))

    def _ungrouped(self, result: ir.Value, core: Core) -> ir.Value:
        width = (sizes(core.value, 4) or ())[3]
        assert isinstance(width, int)
        split = self._new.reshaped(result, [0, core.group, -1, width])
        turned = self._new.transposed(split, HEADS_FIRST)
        return self._new.reshaped(turned, [0, -1, core.heads * width])

    def _for_group(self, bias: ir.Value, group: int) -> ir.Value:
        """The rows of a bias once for each query of a group."""
        memo = ("group", bias, group)
        if memo not in self._masks:
            rows = self._new.node("Tile", [bias, self._new.numbers([1, 1, group, 1])]).outputs[0]
            set_type(rows, bias)
            self._masks[memo] = rows
        return self._masks[memo]

    def _end(self, core: Core, result: ir.Value) -> tuple[ir.Value, ir.Value]:
        """What replaces the heads put side by side after the attention; or its own result."""
        old = core.node.outputs[0]
        before = sizes(old, 4)
        user = only_user(old)
        if user is not None and is_op(user, "Reshape") and before is not None:
            after = sizes(user.outputs[0], 4)
            if after is not None and after[1:] == before[1:] and "" not in after[1:]:
                user = only_user(user.outputs[0])
        if user is not None and is_op(user, "Transpose") and permutation(user) == HEADS_FIRST:
            beside = only_user(user.outputs[0])
            if beside is not None and is_op(beside, "Reshape"):
                shape, target = sizes(beside.outputs[0], 3), sizes(result, 3)
                if shape is not None and target is not None and shape[1:] == target[1:]:
                    return beside.outputs[0], result
                stated = array(beside.inputs[1])
                if stated is None or 0 not in list(stated)[2:]:  # type: ignore[call-overload]
                    node = self._new.node("Reshape", [result, beside.inputs[1]], _plain(beside))
                    return beside.outputs[0], node.outputs[0]
        width = (sizes(core.value, 4) or ())[3]
        assert isinstance(width, int)
        split = self._new.reshaped(result, [0, 0, core.heads, width])
        return old, self._new.transposed(split, HEADS_FIRST)

    def _flat(self, value: ir.Value, heads: int, *, factor: bool = False) -> _Flat:
        """Heads side by side again: the value before they were split, or a new one."""
        transposed = made_by(value, "Transpose")
        if transposed is not None and permutation(transposed) == HEADS_FIRST:
            return self._merged_heads(_input(transposed, 0), heads, factor=factor)
        return self._merged_heads(self._new.transposed(value, HEADS_FIRST), heads)

    def _merged_heads(self, value: ir.Value, heads: int, *, factor: bool = False) -> _Flat:
        """The same of a value of (batch, length, heads, width)."""
        flat = before_heads(value, heads)
        if flat is not None:
            return _without_factor(flat) if factor else _Flat(value=flat)
        width = (sizes(value, 4) or ("",))[-1]
        # ONNX Runtime takes no -1 beside a batch of 0.
        beside = heads * width if isinstance(width, int) else -1
        return _Flat(value=self._new.reshaped(value, [0, 0, beside]))

    def _bias(self, core: Core, query: ir.Value) -> ir.Value | None:
        """The sum of the masks, of (batch or 1, heads or 1, queries, keys)."""
        total: ir.Value | None = None
        for mask in core.masks:
            if total is None or mask.otherwise is None:
                one = self._one_bias(mask, core, query)
                if total is not None:
                    one = self._new.node("Add", [total, one]).outputs[0]
            else:
                # What was added before is not kept either: two lowest numbers would be infinity.
                one = self._chosen(mask, total, core.query.dtype or ir.DataType.FLOAT)
            set_type(one, core.query)
            total = one
        return total

    def _one_bias(self, mask: Mask, core: Core, query: ir.Value) -> ir.Value:
        queries, keys = sizes(core.query, 4) or (), sizes(core.key, 4) or ()
        lengths = (queries[2], keys[core.key_axis])
        memo = (mask.value, mask.otherwise, mask.inverted, lengths, core.query.dtype)
        if "" not in lengths and memo in self._masks:
            return self._masks[memo]
        value, dtype = mask.value, core.query.dtype or ir.DataType.FLOAT
        stated = sizes(value, 4)
        if mask.otherwise is not None:
            value = self._chosen(mask, self._new.number(0.0, dtype), dtype)
        elif value.dtype != dtype:
            if lowest(value.dtype) < lowest(dtype):
                limit = self._new.number(lowest(dtype), value.dtype or ir.DataType.FLOAT)
                value = self._new.node("Max", [value, limit]).outputs[0]
            value = self._new.node("Cast", [value], {"to": int(dtype)}).outputs[0]
        if stated is None or not (same(stated[2], lengths[0]) and same(stated[3], lengths[1])):
            length, others = self._new.size(core.query, 2), self._new.size(core.key, core.key_axis)
            one = self._new.numbers([1])
            shape = self._new.node("Concat", [one, one, length, others], {"axis": 0}).outputs[0]
            value = self._new.node("Expand", [value, shape]).outputs[0]
        value.dtype = dtype
        self._masks[memo] = value
        return value

    def _chosen(self, mask: Mask, kept: ir.Value, dtype: ir.DataType) -> ir.Value:
        """`kept` where the mask keeps scores, else the lowest number."""
        assert mask.otherwise is not None
        # A mask of float32 scores may be lower than a half type can hold.
        other = self._new.number(max(mask.otherwise, lowest(dtype)), dtype)
        choices = (other, kept) if mask.inverted else (kept, other)
        return self._new.node("Where", [mask.value, *choices]).outputs[0]

    def _row_factor(self, mask: ir.Value, result: ir.Value) -> ir.Value:
        """1 for rows with any `true`, and 0 for others, of (batch or 1, queries or 1, 1)."""
        memo = ("rows", mask, result.dtype)
        if memo not in self._masks:
            number = self._new.node("Cast", [mask], {"to": int(result.dtype or ir.DataType.FLOAT)})
            value = self._new.node(
                "ReduceMax", [number.outputs[0], self._new.numbers([-1])]
            ).outputs[0]
            if sizes(mask, 4) is not None:
                value = self._new.node("Squeeze", [value, self._new.numbers([1])]).outputs[0]
            self._masks[memo] = value
        return self._masks[memo]


def _past(core: Core, others: list[ir.Value]) -> tuple[ir.Node, ir.Node] | None:
    """The nodes that put keys and values after those of the past; None if there is none.

    Also if `others`, the inputs of the attention, are computed from what they make.
    """
    found = []
    for value in (core.key, core.value):
        node = made_by(value, "Concat")
        if node is None or len(node.inputs) != 2:
            return None
        axis = node.attributes["axis"].as_int()
        before = sizes(node.inputs[0], 4)
        if axis not in (2, -2) or before is None or before[1] != core.heads:
            return None
        found.append(node)
    keys, values = found
    # The fused operator wants keys and values of the past alike.
    if sizes(keys.inputs[0], 4) != sizes(values.inputs[0], 4):
        return None
    read = [*others, _input(keys, 1), _input(values, 1)]
    return None if keys is values or depends_on(read, found) else (keys, values)


def _fewer(core: Core, heads: int) -> tuple[ir.Value, ir.Value]:
    """Keys and values of a group: with heads side by side, or as they are if one is not made so."""
    flat = []
    for part in (core.key, core.value):
        turned = made_by(part, "Transpose")
        if turned is None or permutation(turned) != HEADS_FIRST:
            break
        flat.append(before_heads(turned.inputs[0], heads))
    if len(flat) == 2 and flat[0] is not None and flat[1] is not None:
        return flat[0], flat[1]
    return core.key, core.value


def _without_factor(value: ir.Value) -> _Flat:
    found = scaled(value.producer())
    if found is None or found[0].dtype != value.dtype or sizes(found[0], 3) is None:
        return _Flat(value=value)
    return _Flat(value=found[0], factor=found[1])


def _input(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index]
    assert value is not None
    return value


def _plain(node: ir.Node) -> dict[str, object]:
    return {name: attribute.value for name, attribute in node.attributes.items()}


@record
class _Projection:
    source: ir.Value
    weights: ir.Value
    bias: ir.Value | None


def pack_attention(graph: ir.Graph) -> dict[str, int]:
    """Write MultiHeadAttention and the products before it as one `com.microsoft::Attention`.

    One product makes queries, keys and values of the same input, by weights that stand side by
    side.  Cases: three products, each with or without a bias; one product that is split.  The
    weights are joined by a Concat of constants, which ONNX Runtime's optimizer folds: only its
    result is stored.  An attention with a past, or over another input, stays as it is.  Returns how
    many of which kind.
    """
    found = {"three products": 0, "split product": 0}
    joined: dict[tuple[object, ...], ir.Value] = {}
    for node in list(graph):
        if node.op_type != "MultiHeadAttention" or node.domain != MICROSOFT:
            continue
        query, key, value, bias, padding, added, *past = (*node.inputs, *[None] * 8)[:8]
        if bias is not None or padding is not None or any(item is not None for item in past):
            continue
        made: list[ir.Node] = []
        split = _split_product(query, key, value)
        if split is not None:
            source, weights = split.source, split.weights
            packed_bias = split.bias or _zeros(split, made)
            found["split product"] += 1
        else:
            found_each = [_projection(item) for item in (query, key, value)]
            three = [item for item in found_each if item is not None]
            if len(three) < 3 or any(item.source is not three[0].source for item in three):
                continue
            source = three[0].source
            weights = _joined([item.weights for item in three], 1, made, joined)
            biases = [item.bias or _zeros(item, made) for item in three]
            packed_bias = _joined(biases, 0, made, joined)
            found["three products"] += 1
        attributes = dict(node.attributes)
        widths = [(sizes(item, 3) or ("", "", ""))[2] for item in (query, key, value)]
        if widths[0] != widths[2]:
            attributes["qkv_hidden_sizes"] = ir.AttrInt64s(
                "qkv_hidden_sizes", [int(width) for width in widths]
            )
        inputs: list[ir.Value | None] = [source, weights, packed_bias, None, None, added]
        while inputs[-1] is None:
            inputs.pop()
        packed = ir.Node(MICROSOFT, "Attention", inputs, list(attributes.values()))
        graph.insert_before(node, [*made, packed])
        replace_value(node.outputs[0], packed.outputs[0])
    return {name: count for name, count in found.items() if count}


def _projection(value: ir.Value | None) -> _Projection | None:
    """The product with constant weights that makes a value of three dims, with its bias."""
    bias = None
    added = made_by(value, "Add")
    if added is not None:
        for product, other in (added.inputs, tuple(reversed(added.inputs))):
            if is_constant(other) and made_by(product, "MatMul") is not None:
                value, bias = product, other
                break
    node = made_by(value, "MatMul")
    if node is None:
        return None
    source, weights = node.inputs
    shape, known = sizes(weights, 2), sizes(source, 3)
    if source is None or weights is None or shape is None or known is None:
        return None
    if not is_constant(weights) or not isinstance(shape[1], int):
        return None
    if bias is not None and sizes(bias, 1) != (shape[1],):
        return None
    return _Projection(source=source, weights=weights, bias=bias)


def _split_product(*parts: ir.Value | None) -> _Projection | None:
    """The product whose thirds are queries, keys and values."""
    node = made_by(parts[0], "Split")
    if node is None or tuple(node.outputs) != parts:
        return None
    widths = {(sizes(part, 3) or ("", "", ""))[2] for part in parts}
    (width, *others) = widths
    found = _projection(node.inputs[0]) if isinstance(width, int) and not others else None
    # Thirds of the last axis, not of the length.
    if found is None or sizes(found.weights, 2) != ((sizes(found.source, 3) or ())[2], 3 * width):
        return None
    return found


def _joined(
    values: list[ir.Value],
    axis: int,
    made: list[ir.Node],
    joined: dict[tuple[object, ...], ir.Value],
) -> ir.Value:
    memo = (axis, *values)
    if memo not in joined:
        node = ir.Node("", "Concat", values, [ir.AttrInt64("axis", axis)])
        set_type(node.outputs[0], values[0])
        made.append(node)
        joined[memo] = node.outputs[0]
    return joined[memo]


def _zeros(item: _Projection, made: list[ir.Node]) -> ir.Value:
    """A bias that is 0: without one, ONNX Runtime's Attention crashes on the CPU."""
    width, dtype = (sizes(item.weights, 2) or (0, 0))[1], item.weights.dtype
    assert isinstance(width, int) and dtype is not None
    tensor = ir.tensor(np.zeros(width, dtype=dtype.numpy()), dtype=dtype)
    made.append(ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)]))
    return made[-1].outputs[0]
