"""Fixtures: inputs generated from a seed, with values that make sense for their operators.

`hints_of` reads a graph and says what each input feeds; `generate` draws the values.
A hint is one of: index (below `high`), choice, ones, small, positive, unit, words; with `list`
the value of an optional is a list of such tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from aotc.contract.manifest import Value
from aotc.contract.parsing import Json
from aotc.engine.values import NARROW_BITS, numpy_dtype

if TYPE_CHECKING:
    import onnx

Hints = Mapping[str, Mapping[str, Json]]
_WORDS = ("alpha", "beta", "gamma", "1", "2.5", "the quick brown fox")
_THROUGH = ("Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Transpose", "Expand")
_SHAPES = (
    "Reshape",
    "Expand",
    "Tile",
    "ConstantOfShape",
    "Range",
    "TopK",
    "Slice",
    "Loop",
    "OneHot",
)
# How many elements a sequence gets.
_SEQUENCE = 2
_UNNAMED = 2


def hints_of(model: onnx.ModelProto) -> dict[str, dict[str, Json]]:
    """What the values of each graph input should be, from the operators that read it.

    Rules: an index of Gather (or of ORT's embedding layer) stays within the table's rows;
    what is compared by Equal with constants takes their values; a name that speaks of a mask
    gets ones; what a shape operator reads stays small.  Raises nothing: no rule, no hint.
    """
    from onnx import numpy_helper

    constants: dict[str, Any] = {}
    rows: dict[str, tuple[int, ...]] = {}
    for tensor in model.graph.initializer:
        rows[tensor.name] = tuple(tensor.dims)
        if np.prod(tensor.dims, dtype=np.int64) <= 1024 and tensor.data_location == 0:
            constants[tensor.name] = numpy_helper.to_array(tensor)
    consumers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in _all_nodes(model.graph.node):
        if node.op_type == "Constant" and node.output:
            for attribute in node.attribute:
                if attribute.name == "value":
                    tensor = attribute.t
                    rows[node.output[0]] = tuple(tensor.dims)
                    if np.prod(tensor.dims, dtype=np.int64) <= 1024 and tensor.data_location == 0:
                        constants[node.output[0]] = numpy_helper.to_array(tensor)
        for index, name in enumerate(node.input):
            consumers.setdefault(name, []).append((node, index))
    hints = {}
    for value in model.graph.input:
        if value.name not in rows:
            hint = _hint(value.name, consumers, constants, rows)
            if value.type.optional_type.elem_type.HasField("sequence_type"):
                hint["list"] = True
            if hint:
                hints[value.name] = hint
    return hints


def _all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterable[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g.node)


def _hint(
    name: str,
    consumers: Mapping[str, list[tuple[onnx.NodeProto, int]]],
    constants: Mapping[str, Any],
    rows: Mapping[str, tuple[int, ...]],
) -> dict[str, Json]:
    pending, seen = [name], {name}
    limits, choices, other = [], [], ""
    while pending:
        for node, index in consumers.get(pending.pop(), ()):
            kind = node.op_type
            table = _table(node, index, rows)
            if table:
                limits.append(table)
            elif kind == "Equal":
                against = constants.get(node.input[1 - index])
                if against is not None:
                    choices.extend(np.ravel(against).tolist()[:16])
            elif kind in ("LabelEncoder", "CategoryMapper", "OneHotEncoder"):
                choices.extend(_keys(node))
            elif kind in ("Log", "Sqrt"):
                other = other or "positive"
            elif kind in _SHAPES and (index > 0 or kind in ("Loop", "ConstantOfShape", "Range")):
                other = other or "small"
            elif kind in _THROUGH and index == 0 and node.output[0] not in seen:
                seen.add(node.output[0])
                pending.append(node.output[0])
    if choices:
        return {"kind": "choice", "values": choices}
    if limits:
        return {"kind": "index", "high": min(limits)}
    if "mask" in name.lower():
        return {"kind": "ones"}
    return {"kind": other} if other else {}


def _table(node: onnx.NodeProto, index: int, rows: Mapping[str, tuple[int, ...]]) -> int:
    """Rows of the table that input `index` of `node` indexes, or 0."""
    if node.op_type == "Gather" and index == 1:
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        dims = rows.get(node.input[0], ())
        return dims[axis] if -len(dims) <= axis < len(dims) else 0
    if node.op_type == "EmbedLayerNormalization" and index in (0, 1, 8):
        source = {0: 2, 1: 4, 8: 3}[index]
        dims = rows.get(node.input[source], ()) if len(node.input) > source else ()
        return dims[0] if dims else 0
    return 0


def _keys(node: onnx.NodeProto) -> list[Json]:
    found: list[Json] = []
    for attribute in node.attribute:
        if attribute.name in ("keys_strings", "cats_strings"):
            found += [text.decode("utf-8", "replace") for text in attribute.strings[:16]]
        elif attribute.name in ("keys_int64s", "cats_int64s"):
            found += list(attribute.ints[:16])
    return found


def shape_of(value: Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The sizes of an input; a name that `sizes` lacks counts as 2, an unknown rank as [2]."""
    if value.shape is None:
        return (sizes.get(f"{value.name}.0", _UNNAMED),)
    return tuple(d if isinstance(d, int) else sizes.get(d, _UNNAMED) for d in value.shape)


def generate(
    values: Iterable[Value], sizes: Mapping[str, int], hints: Hints, seed: int
) -> dict[str, Any]:
    """Inputs by name: arrays; lists of arrays for sequences; dicts for maps.

    Equal arguments give equal values (PCG64 seeded by `seed` and the input's position).
    """
    result: dict[str, Any] = {}
    for position, value in enumerate(values):
        rng = np.random.default_rng((seed, position))
        hint = hints.get(value.name, {})
        shape = shape_of(value, sizes)
        if value.kind == "sequence" or hint.get("list"):
            result[value.name] = [_array(value.dtype, shape, hint, rng) for _ in range(_SEQUENCE)]
        elif value.kind == "map":
            keys = _WORDS[:3] if value.dtype == "string" else (0, 1, 2)
            result[value.name] = {key: float(rng.normal()) for key in keys}
        else:
            result[value.name] = _array(value.dtype, shape, hint, rng)
    return result


def one_sided(
    inputs: Mapping[str, Any], values: Iterable[Value], hints: Hints
) -> dict[str, dict[str, Any]]:
    """`inputs` with all floats negative, and with all positive; none where no input is free to be.

    Padding with zeros goes unseen under a maximum of values of both signs.
    """
    free = [
        value.name
        for value in values
        if value.kind == "tensor"
        and "float" in value.dtype
        and not hints.get(value.name)
        and value.name in inputs
    ]
    if not free:
        return {}
    result: dict[str, dict[str, Any]] = {}
    for side, sign in (("negative", -1), ("positive", 1)):
        changed = {}
        for name in free:
            array = inputs[name]
            changed[name] = (sign * (np.abs(array.astype(np.float32)) + 1)).astype(array.dtype)
        result[side] = {**inputs, **changed}
    return result


def _array(
    dtype: str, shape: tuple[int, ...], hint: Mapping[str, Json], rng: np.random.Generator
) -> Any:
    kind = hint.get("kind", "")
    if dtype == "string":
        words = [str(v) for v in hint["values"]] if kind == "choice" else list(_WORDS)
        return np.array(rng.choice(words, size=shape), dtype=object).reshape(shape)
    target = numpy_dtype(dtype)
    if kind == "choice":
        return np.asarray(rng.choice(np.array(hint["values"]), size=shape)).astype(target)
    if kind == "ones":
        return np.ones(shape, target)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in NARROW_BITS:
        count = 1 << NARROW_BITS[dtype]
        low = -count // 2 if dtype.startswith("int") else 0
        return rng.integers(low, low + count, shape, dtype=np.int8).astype(target)
    if np.issubdtype(target, np.integer):
        low, high = 0, 8
        if kind == "index":
            high = int(hint["high"])
        elif kind == "small":
            low, high = 1, 3
        elif target.itemsize == 1:
            info = np.iinfo(target)
            low, high = int(info.min), int(info.max) + 1
        high = min(high, int(np.iinfo(target).max) + 1)
        return rng.integers(low, high, shape, dtype=np.int64).astype(target)
    if kind == "positive":
        return rng.uniform(0.1, 2.0, shape).astype(target)
    if dtype in ("complex64", "complex128"):
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(target)
    return np.asarray(rng.normal(size=shape), dtype=np.float32).astype(target)
