"""Finding attention: scores of queries and keys, softmax, and the sum of values by it.

Cases: the standard operator Attention (opset 23 and later); its single operators, as exporters
write them: scaled before or after the product of queries and keys, keys transposed at once or as
three dims, masks that are added or chosen by Where, softmax in float32, and results that are not a
number set to 0.  What is not found stays as it is; `Left` says what was left and why.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from aotc.base.records import record, replace
from aotc.graph.passes.fuse_for_cuda.graph_values import (
    bounds,
    broadcast_scalar,
    holds_infinity,
    integer,
    is_op,
    lowest,
    made_by,
    number,
    only_user,
    permutation,
    replace_value,
    same,
    scaled,
    set_type,
    sizes,
    uncast,
)

_SWAPPED = (0, 1, 3, 2)
_LAST_AXIS_SINCE = 13
# The same, of heads that were not put before the length.
_SWAPPED_SPLIT = (0, 2, 3, 1)
# To these the scores of a row are added without a trace, as if they were chosen in their place.
_LOW, _LOW_HALF = -1e9, -6e4
_MERGED = (0, 2, 1)


@record
class Mask:
    """What is added to the scores; with `otherwise`, scores stay where it is true."""

    value: ir.Value
    otherwise: float | None = None
    inverted: bool = False


@record
class Core:
    """One attention; queries, keys and values are of (batch, heads, length, width).

    With `split_keys`, keys are of (batch, length, heads, width).  `zero_rows` is a boolean mask;
    a row of it without any `true` gives 0.  `guarded`: probabilities that are not a number are
    set to 0, which the fused operator does not do.  `idle_masks` are not among the masks: they are
    proven to change no score.  With `group`, keys and values have that many times fewer heads, and
    each serves as many heads of the queries in turn.
    """

    node: ir.Node
    query: ir.Value
    key: ir.Value
    value: ir.Value
    heads: int
    scale: float
    masks: tuple[Mask, ...] = ()
    causal: bool = False
    zero_rows: ir.Value | None = None
    split_keys: bool = False
    guarded: bool = False
    idle_masks: int = 0
    group: int = 1

    @property
    def key_axis(self) -> int:
        """The axis of the keys' length."""
        return 1 if self.split_keys else 2


@record
class _Scores:
    product: ir.Node
    scale: float = 1.0
    masks: tuple[Mask, ...] = ()


def core_at(node: ir.Node) -> Core | None:
    """The attention whose result `node` computes."""
    found = _standard(node) if is_op(node, "Attention") else _decomposed(node)
    if found is None:
        return None
    found = _without_idle_masks(found)
    if any(_has_infinity(mask) for mask in found.masks):
        # With all scores of a row at -inf, kernels differ in what they make of it.
        return None
    if found.guarded and not _is_finite(found.masks):
        return None
    # A scale of 0 is none to the fused operator.
    if not found.scale or not math.isfinite(found.scale) or not _fits(found):
        return None
    return _without_repeats(found)


def _without_repeats(core: Core) -> Core | None:
    """`core` of the keys and values before they are repeated for a group of queries.

    None if heads that are not repeated cannot be grouped.
    """
    if core.split_keys:
        return core
    parts = [_before_repeats(part) if core.group == 1 else part for part in (core.key, core.value)]
    known = [sizes(part, 4) for part in parts]
    if known[0] is None or known[1] is None or known[0][1] != known[1][1]:
        return core
    # The rows of a group stand under each other: masks are of all heads, none of a diagonal.
    masks = [sizes(mask.value, len(mask.value.shape or ())) or () for mask in core.masks]
    of_all = all(mask and (1, 1, *mask)[-3] == 1 for mask in masks)
    heads = known[0][1]
    assert isinstance(heads, int) and parts[0] is not None and parts[1] is not None
    if core.causal or not of_all or known[0][3] != known[1][3]:
        return core if core.group == 1 else None
    return replace(core, key=parts[0], value=parts[1], group=core.heads // heads)


def _before_repeats(value: ir.Value) -> ir.Value | None:
    """What is spread to a value of (batch, heads, length, width), each head some times in turn."""
    joined = made_by(value, "Reshape")
    spread = made_by(joined.inputs[0], "Expand") if joined is not None else None
    if spread is None:
        return None
    before, after = sizes(spread.inputs[0], 5), sizes(spread.outputs[0], 5)
    result = sizes(value, 4)
    if before is None or after is None or result is None:
        return None
    heads, times = after[1:3]
    if not isinstance(heads, int) or not isinstance(times, int) or result[1] != heads * times:
        return None
    kept = [axis for axis in range(5) if axis != 2]
    alone = [after[axis] for axis in kept]
    if not all(same(before[axis], after[axis]) for axis in kept):
        return None
    if not all(same(alone[axis], result[axis]) for axis in (0, 2, 3)):
        return None
    # An axis of 1 is put between, which moves no number.
    added = spread.inputs[0].producer() if spread.inputs[0] is not None else None
    source = added.inputs[0] if added is not None else None
    if added is None or not (is_op(added, "Unsqueeze") or is_op(added, "Reshape")):
        return None
    known = sizes(source, 4)
    if known is None or not all(map(same, known, alone)):
        return None
    return source


def _without_idle_masks(core: Core) -> Core:
    """`core` without masks that are proven to leave all scores as they are, of any sizes.

    CUDA's quickest kernels take none.
    """
    wanted = _score_sizes(core)
    kept = tuple(
        mask for mask in core.masks if not (_is_idle(mask) and _broadcasts_to(mask, wanted))
    )
    zero_rows = core.zero_rows if any(mask.value is core.zero_rows for mask in kept) else None
    return replace(core, masks=kept, zero_rows=zero_rows, idle_masks=len(core.masks) - len(kept))


def _score_sizes(core: Core) -> tuple[int | str, ...]:
    queries, keys = sizes(core.query, 4) or (), sizes(core.key, 4) or ()
    return queries[0], core.heads, queries[2], keys[core.key_axis]


def _is_idle(mask: Mask) -> bool:
    if mask.otherwise is None:
        return bounds(mask.value) == (0.0, 0.0)
    kept = float(not mask.inverted)
    return bounds(mask.value) == (kept, kept)


def _broadcasts_to(mask: Mask, wanted: tuple[int | str, ...]) -> bool:
    """Whether a mask has no more elements than scores of the sizes `wanted`, along any dim."""
    if mask.value.shape is None or len(mask.value.shape) > len(wanted):
        return False
    stated = sizes(mask.value, len(mask.value.shape)) or ()
    pairs = zip(reversed(stated), reversed(wanted), strict=False)
    return all(size == 1 or same(size, most) for size, most in pairs)


def _fits(core: Core) -> bool:
    """Whether types and sizes suit the fused operator, which broadcasts nothing but masks."""
    parts = (core.query, core.key, core.value)
    if len({part.dtype for part in parts if part.dtype is not None}) > 1:
        return False
    queries, keys, values = (sizes(part, 4) or () for part in parts)
    length = keys[core.key_axis]
    if not _may_equal(queries[0], keys[0]) or not _may_equal(queries[0], values[0]):
        return False
    if not _may_equal(length, values[2]):
        return False
    wanted = _score_sizes(core)
    for mask in core.masks:
        shape = mask.value.shape
        if shape is None:
            continue
        if len(shape) > len(wanted):
            return False
        stated = sizes(mask.value, len(shape)) or ()
        for size, most in zip(reversed(stated), reversed(wanted), strict=False):
            if size != 1 and not _may_equal(size, most):
                return False
        # Scores that are not kept must be far below all others, whatever these are.
        if mask.otherwise is not None and not mask.otherwise <= _far_below(core.query.dtype):
            return False
    return True


def _may_equal(one: int | str, other: int | str) -> bool:
    """Whether two sizes can be the same; 1 is only 1, as what is spread has that size."""
    if 1 in (one, other) or (isinstance(one, int) and isinstance(other, int)):
        return one == other
    return True


def _far_below(dtype: ir.DataType | None) -> float:
    return _LOW_HALF if dtype == ir.DataType.FLOAT16 else _LOW


def _standard(node: ir.Node) -> Core | None:
    query, key, value, mask, *others = (*node.inputs, None, None, None, None)[:7]
    known = _heads(query, key, value, grouped=True)
    unread = all(not out.uses() and not out.is_graph_output() for out in node.outputs[1:])
    if known is None or any(others) or not unread or number(node, "softcap", 0.0):
        return None
    assert query is not None and key is not None and value is not None
    heads, width = known
    causal = bool(integer(node, "is_causal", 0))
    queries, keys = sizes(query, 4), sizes(key, 4)
    assert queries is not None and keys is not None
    # Kernels differ in where the diagonal is if there are more keys than queries.
    if causal and (mask is not None or not same(queries[2], keys[2])):
        return None
    masks: tuple[Mask, ...] = ()
    boolean = mask is not None and mask.dtype == ir.DataType.BOOL
    if mask is not None:
        masks = (Mask(value=mask, otherwise=lowest(query.dtype) if boolean else None),)
        if boolean and sizes(mask, 2) is None and (sizes(mask, 4) or (0, 0))[1] != 1:
            return None
    return Core(
        node=node,
        query=query,
        key=key,
        value=value,
        heads=heads,
        scale=number(node, "scale", 1 / math.sqrt(width)),
        masks=masks,
        causal=causal,
        zero_rows=mask if boolean else None,
        group=heads // int(keys[1]),
    )


def _decomposed(node: ir.Node) -> Core | None:
    if not is_op(node, "MatMul"):
        return None
    probabilities = node.inputs[0]
    guarded = uncast(probabilities)
    unguarded = _without_nan(guarded)
    softmax = made_by(unguarded, "Softmax")
    if softmax is None or softmax.inputs[0] is None or probabilities is None:
        return None
    # What else reads them would need all of it computed again.
    if only_user(probabilities) is not node or softmax.outputs[0].is_graph_output():
        return None
    shape = softmax.inputs[0].shape
    last = len(shape) - 1 if shape is not None else 3
    if integer(softmax, "axis", _default_axis(node)) not in (-1, last):
        return None
    scores = _scores(softmax.inputs[0])
    if scores is None:
        return None
    query, factor = _unscaled(scores.product.inputs[0])
    transposed, key_factor = _unscaled(scores.product.inputs[1])
    turned = made_by(transposed, "Transpose")
    split = permutation(turned) == _SWAPPED_SPLIT
    key = turned.inputs[0] if turned is not None and split else _untransposed(transposed)
    value = node.inputs[1]
    known = _heads(query, key, value, split_keys=split)
    if known is None:
        return None
    assert query is not None and key is not None and value is not None
    return Core(
        node=node,
        query=query,
        key=key,
        value=value,
        heads=known[0],
        scale=scores.scale * factor * key_factor,
        masks=scores.masks,
        split_keys=split,
        guarded=unguarded is not guarded,
    )


def _default_axis(node: ir.Node) -> int:
    """The axis of a Softmax that states none; before opset 13, all axes from the second on."""
    opsets = node.graph.opset_imports if node.graph is not None else {}
    return -1 if opsets.get("", 1) >= _LAST_AXIS_SINCE else 1


def _scores(value: ir.Value | None) -> _Scores | None:
    """The product of queries and keys before its factor and masks."""
    value = uncast(value)
    node = value.producer() if value is not None else None
    if node is None:
        return None
    if is_op(node, "MatMul"):
        return _Scores(product=node)
    if (factored := scaled(node)) is not None:
        inner = _scores(factored[0])
        if inner is None or inner.masks:
            return None
        return _Scores(product=inner.product, scale=inner.scale * factored[1])
    if is_op(node, "Add"):
        found = [
            (_scores(node.inputs[0]), node.inputs[1]),
            (_scores(node.inputs[1]), node.inputs[0]),
        ]
        read = [(inner, mask) for inner, mask in found if inner is not None and mask is not None]
        if len(read) != 1:
            return None
        inner, mask = read[0]
        return _with_mask(inner, Mask(value=mask))
    if is_op(node, "Where"):
        chosen, first, second = node.inputs
        for kept, other, inverted in (
            (first, broadcast_scalar(second, first), False),
            (second, broadcast_scalar(first, second), True),
        ):
            inner = _scores(kept) if other is not None else None
            if inner is not None and other is not None and chosen is not None:
                return _with_mask(inner, Mask(value=chosen, otherwise=other, inverted=inverted))
    return None


def _with_mask(scores: _Scores, mask: Mask) -> _Scores:
    return _Scores(product=scores.product, scale=scores.scale, masks=(*scores.masks, mask))


def _without_nan(value: ir.Value | None) -> ir.Value | None:
    """The value before what is not a number in it becomes 0."""
    node = made_by(value, "Where")
    if node is None:
        return value
    test = made_by(node.inputs[0], "IsNaN")
    if (
        test is None
        or test.inputs[0] is not node.inputs[2]
        or broadcast_scalar(node.inputs[1], node.inputs[2]) != 0
    ):
        return value
    return uncast(node.inputs[2])


def _unscaled(value: ir.Value | None) -> tuple[ir.Value | None, float]:
    found = scaled(value.producer()) if value is not None else None
    return found if found is not None else (value, 1.0)


def _untransposed(value: ir.Value | None) -> ir.Value | None:
    """The keys before their last dims are swapped."""
    node = made_by(value, "Transpose")
    if permutation(node) == _SWAPPED:
        assert node is not None
        return node.inputs[0]
    return None


def _heads(
    query: ir.Value | None,
    key: ir.Value | None,
    value: ir.Value | None,
    *,
    split_keys: bool = False,
    grouped: bool = False,
) -> tuple[int, int] | None:
    """The number of the queries' heads, and the width of one; `grouped`: keys may have fewer."""
    known = [sizes(item, 4) for item in (query, key, value)]
    if any(found is None for found in known):
        return None
    queries, keys, values = (found or () for found in known)
    heads, width = queries[1], queries[3]
    if not isinstance(heads, int) or not isinstance(width, int) or not isinstance(values[3], int):
        return None
    fewer = keys[2 if split_keys else 1]
    if fewer != values[1] or keys[3] != width or not isinstance(fewer, int):
        return None
    if fewer != heads and not (grouped and fewer and heads % fewer == 0):
        return None
    return heads, width


def _has_infinity(mask: Mask) -> bool:
    """Whether the mask is made from a constant of -inf."""
    if mask.otherwise is not None:
        return math.isinf(mask.otherwise)
    return holds_infinity(mask.value)


def _is_finite(masks: tuple[Mask, ...]) -> bool:
    """Whether the masks, and their sum, are proven to hold finite numbers only."""
    total, dtype = 0.0, None
    for mask in masks:
        if mask.otherwise is None:
            found = bounds(mask.value)
            if found is None:
                return False
            total, dtype = total + min(found[0], 0.0), mask.value.dtype
    return total >= lowest(dtype)


def split_key_transposes(graph: ir.Graph) -> dict[str, int]:
    """Write transposes of keys, whose batch and heads are merged meanwhile, with four dims.

    Exporters of scaled dot-product attention write Reshape, Transpose, Reshape.  If all sizes are
    known, what was before the first Reshape, as keys that are repeated for groups of queries, may
    be merged into it, so that no value of (batch, heads, length, width) is left.  Returns how many.
    """
    count = 0
    for outer in list(graph):
        middle = made_by(outer.inputs[0], "Transpose") if is_op(outer, "Reshape") else None
        inner = made_by(middle.inputs[0], "Reshape") if middle is not None else None
        if inner is None or permutation(middle) != _MERGED:
            continue
        merged, after = sizes(inner.outputs[0], 3), sizes(outer.outputs[0], 4)
        if merged is None or after is None:
            continue
        if not same(merged[1], after[3]) or not same(merged[2], after[2]):
            continue
        made: list[ir.Node] = []
        keys = _split(inner.inputs[0], (after[0], after[1], after[3], after[2]), made)
        if keys is None:
            continue
        made.append(ir.Node("", "Transpose", [keys], [ir.AttrInt64s("perm", _SWAPPED)]))
        set_type(made[-1].outputs[0], outer.outputs[0])
        graph.insert_before(outer, made)
        replace_value(outer.outputs[0], made[-1].outputs[0])
        count += 1
    return {"keys": count} if count else {}


def _split(
    value: ir.Value | None, wanted: tuple[int | str, ...], made: list[ir.Node]
) -> ir.Value | None:
    """The value if it is of these sizes, else a Reshape of it; None if more than one is unknown."""
    before = sizes(value, 4)
    # The batch follows.
    if before is not None and all(same(before[axis], wanted[axis]) for axis in (1, 2, 3)):
        return value
    free = [axis for axis, size in enumerate(wanted) if not isinstance(size, int)]
    if len(free) > 1 or 0 in wanted:
        return None
    numbers = [size if isinstance(size, int) else -1 for size in wanted]
    shape = ir.Node(
        "", "Constant", [], [ir.AttrTensor("value", ir.tensor(numbers, dtype=ir.DataType.INT64))]
    )
    made += [shape, ir.Node("", "Reshape", [value, shape.outputs[0]])]
    result = made[-1].outputs[0]
    result.shape = ir.Shape([size or None for size in wanted])
    if value is not None:
        set_type(result, value)
    return result
