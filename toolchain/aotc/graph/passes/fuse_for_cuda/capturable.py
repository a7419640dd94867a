"""Integers, booleans and masked assignments, written as operators that CUDA has kernels for.

One node on the CPU, or one whose size depends on values, keeps a whole graph from being captured.
Cases:
- an operator that CUDA has for other types only (`_WIDENED`): its inputs are cast to a type that
  holds every number of theirs, and its result is cast back.  An int64 is cast to float64 only if it
  is proven to be within 2^53: made from narrower integers, or an index into a table of known size;
- `values[mask] = number`, which exporters write as NonZero and ScatterND, is a Where.

What CUDA has a kernel for is left, by the table of ONNX Runtime's kernels; so are nodes that
compute shapes, which stay on the CPU without harm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import onnx_ir as ir

from aotc.base.records import record
from aotc.graph.kernels import KernelTable, Signature, pair_values, signature_of
from aotc.graph.passes.fuse_for_cuda.graph_values import (
    constant,
    integer,
    is_op,
    made_by,
    only_user,
    permutation,
    replace_value,
    same,
    sizes,
)
from aotc.graph.passes.fuse_for_cuda.new_nodes import NewNodes
from aotc.spec.providers import STANDARD

_Type = ir.DataType
_EIGHT_BITS: Final = (_Type.INT8, _Type.UINT8)
_INTO_INT32: Final = dict.fromkeys((*_EIGHT_BITS, _Type.INT16, _Type.UINT16), _Type.INT32)
_INTO_INT64: Final = {
    **dict.fromkeys((*_INTO_INT32, _Type.INT32), _Type.INT64),
    _Type.UINT32: _Type.INT64,
}
# float16 and bfloat16 hold all numbers of 8 bits as well, should the graph be converted to them.
_INTO_FLOATS: Final = {
    **dict.fromkeys(_EIGHT_BITS, _Type.FLOAT),
    **dict.fromkeys((_Type.INT16, _Type.UINT16, _Type.INT32, _Type.UINT32), _Type.DOUBLE),
    _Type.INT64: _Type.DOUBLE,
}
_AXES_ARE_INPUTS: Final = 13
# float64 holds all integers up to it.
_EXACT: Final = 1 << 53
# These keep the numbers of their first input, and those of integers that are no wider than int32.
_KEEPING: Final = frozenset(
    {"Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)
_CHOOSING: Final = frozenset({"Gather", "GatherElements", "GatherND", "Slice", "Tile"})
_DEEP: Final = 32


@record(kw_only=False)
class _Widened:
    """Which inputs of an operator are cast, to which type by their own; and its result, back."""

    inputs: slice | tuple[int, ...]
    to: Mapping[ir.DataType, ir.DataType]
    back: bool = True

    def of(self, node: ir.Node) -> list[int]:
        """The indices of the inputs of a node that are cast."""
        given = range(len(node.inputs))
        chosen = given[self.inputs] if isinstance(self.inputs, slice) else self.inputs
        return [at for at in chosen if at in given and node.inputs[at] is not None]


_COMPARED: Final = _Widened((0, 1), _INTO_INT32, back=False)
_INDEXED: Final = _Widened((0,), _INTO_FLOATS, back=False)
_LARGEST: Final = _Widened((0,), {_Type.BOOL: _Type.FLOAT})
_WIDENED: Final[Mapping[str, _Widened]] = {
    "ArgMax": _INDEXED,
    "ArgMin": _INDEXED,
    # ONNX Runtime 1.31 takes no bounds of int64 beyond those of int32.
    "Clip": _Widened((0, 1, 2), {_Type.INT32: _Type.INT64}),
    "Equal": _COMPARED,
    "GatherND": _Widened((0,), _INTO_INT64),
    "Greater": _COMPARED,
    "GreaterOrEqual": _COMPARED,
    "Less": _COMPARED,
    "LessOrEqual": _COMPARED,
    "Max": _Widened(slice(None), _INTO_INT32),
    "Min": _Widened(slice(None), _INTO_INT32),
    "Mod": _Widened((0, 1), _INTO_INT32),
    "Pad": _Widened((0, 2), _INTO_FLOATS),
    "ReduceMax": _LARGEST,
    "ReduceMin": _LARGEST,
    "Relu": _Widened((0,), _INTO_FLOATS),
    "Tile": _Widened((0,), {**_INTO_INT32, _Type.BOOL: _Type.INT32, _Type.UINT32: _Type.INT64}),
    "Where": _Widened((1, 2), {**_INTO_INT32, _Type.UINT32: _Type.INT64}),
}


@record(kw_only=False)
class _Kernels:
    """What the provider `ep` has kernels for, at an opset."""

    ep: str
    opset: int

    def has(self, op_type: str, types: Callable[[Signature], Mapping[str, str]]) -> bool:
        """Whether of an operator for types, by type variables and names of parameters."""
        signature = signature_of("", op_type, self.opset)
        if signature is None:
            return True
        table = KernelTable.load(self.ep)
        found = table.kernel(self.ep, "", op_type, signature.version, types(signature))
        return found.kernel is not None


def write_as_cuda_has_it(graph: ir.Graph, ep: str) -> dict[str, int]:
    """Rewrite the nodes of the main graph in place; returns how many, by what they were.

    `ep` is ONNX Runtime's name of the provider whose kernels are looked up.
    """
    kernels = _Kernels(ep, graph.opset_imports.get("", 1))
    on_shapes = _values_of_shapes(graph)
    found, new = Counter[str](), NewNodes(graph)
    for node in list(graph):
        if on_shapes.issuperset(node.outputs):
            continue
        rule = _WIDENED.get(node.op_type) if node.domain in STANDARD else None
        if rule is not None and (kind := _lost_type(node, rule, kernels)):
            _widen(node, rule, new)
            found[f"{node.op_type} of {kind.name.lower()}"] += 1
        elif is_op(node, "ScatterND") and _choose(node, kernels, new):
            found["masked assignment"] += 1
    return dict(found)


def _values_of_shapes(graph: ir.Graph) -> set[ir.Value]:
    """Values that depend on the shapes of inputs alone; ONNX Runtime has them on the CPU."""
    found: set[ir.Value] = set()
    for node in graph:
        given = [value for value in node.inputs if value is not None and constant(value) is None]
        if node.op_type in ("Shape", "Size") or (given and found.issuperset(given)):
            found.update(node.outputs)
    return found


def _lost_type(node: ir.Node, rule: _Widened, kernels: _Kernels) -> ir.DataType | None:
    """The type for which CUDA has no kernel of the node, but has one of the wider type."""
    read = [value for at in rule.of(node) if (value := node.inputs[at]) is not None]
    kinds = {value.dtype for value in read}
    kind = kinds.pop() if len(kinds) == 1 else None
    # No kernel of CUDA takes the last of several.
    if kind is None or kind not in rule.to or integer(node, "select_last_index", 0):
        return None
    if kernels.has(node.op_type, lambda signature: _types(node, signature, {})):
        return None
    changed = dict.fromkeys((*read, *(node.outputs if rule.back else ())), rule.to[kind])
    if not kernels.has(node.op_type, lambda signature: _types(node, signature, changed)):
        return None
    if kind == _Type.INT64 and not all(_is_exact(value, _DEEP) for value in read):
        return None
    return kind


def _types(
    node: ir.Node, signature: Signature, changed: Mapping[ir.Value, ir.DataType]
) -> dict[str, str]:
    """A node's types by type variable and by parameter, some of them `changed`."""
    found: dict[str, str] = {}
    for formals, values in ((signature.inputs, node.inputs), (signature.outputs, node.outputs)):
        for formal, at in pair_values(formals, [str(at) for at in range(len(values))]):
            value = values[int(at)]
            kind = changed.get(value, value.dtype) if value is not None else None
            if kind is not None:
                found.setdefault(formal.kind, _spelling(kind))
                found.setdefault(formal.name, _spelling(kind))
    return found


def _spelling(kind: ir.DataType) -> str:
    return f"tensor({kind.name.lower()})"


def _is_exact(value: ir.Value, depth: int) -> bool:
    """Whether every number of an int64 is proven to be within 2^53."""
    if value.dtype is not None and value.dtype != _Type.INT64:
        return value.dtype == _Type.BOOL or value.dtype in _INTO_INT64
    tensor = constant(value)
    if tensor is not None:
        known = tensor.numpy()
        return not known.size or bool(known.min() >= -_EXACT and known.max() <= _EXACT)
    if _is_index(value, depth):
        return True
    node = value.producer()
    if node is None or depth == 0 or node.domain not in STANDARD or node.inputs[0] is None:
        return False
    if node.op_type in ("Shape", "Size"):
        return True
    if node.op_type == "Cast" or node.op_type in _KEEPING | _CHOOSING:
        return _is_exact(node.inputs[0], depth - 1)
    return False


def _is_index(value: ir.Value, depth: int) -> bool:
    """Whether all numbers of `value` are indices into an axis of known size.

    Others are no valid input of the model (ONNX's Gather).  A branch may not run.
    """
    for usage in value.uses():
        node = usage.node
        if node.graph is not value.graph:
            continue
        if is_op(node, "Gather") and usage.idx == 1 and node.inputs[0] is not None:
            shape = node.inputs[0].shape
            axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
            size = shape[axis] if shape is not None else None
            if isinstance(size, int) and size <= _EXACT:
                return True
        kept = node.op_type in _KEEPING and node.domain in STANDARD and usage.idx == 0
        if kept and depth and _is_index(node.outputs[0], depth - 1):
            return True
    return False


def _widen(node: ir.Node, rule: _Widened, new: NewNodes) -> None:
    """Replace `node` by itself between casts."""
    inputs, own = list(node.inputs), node.outputs[0]
    for at in rule.of(node):
        value = inputs[at]
        assert value is not None and value.dtype is not None
        inputs[at] = _cast(value, rule.to[value.dtype], new)
    result = new.alike(node, inputs)
    result.shape = own.shape
    if rule.back:
        assert own.dtype is not None
        result.dtype = rule.to[own.dtype]
        result = _cast(result, own.dtype, new)
    new.place_before(node)
    replace_value(own, result)


def _cast(value: ir.Value, to: ir.DataType, new: NewNodes) -> ir.Value:
    made = new.node("Cast", [value], {"to": to.value}).outputs[0]
    made.dtype, made.shape = to, value.shape
    return made


def _choose(node: ir.Node, kernels: _Kernels, new: NewNodes) -> bool:
    """Write `values[mask] = number` as a Where, if the sizes of both are known to be equal."""
    values, indices, updates = node.inputs[:3]
    turned = made_by(indices, "Transpose")
    found = made_by(turned.inputs[0], "NonZero") if turned is not None else None
    reduction = node.attributes["reduction"].as_string() if "reduction" in node.attributes else ""
    if found is None or turned is None or values is None or reduction not in ("", "none"):
        return False
    # What else reads them would need them all the same, unless it counts them for the updates.
    users = [usage.node for usage in turned.outputs[0].uses() if not is_op(usage.node, "Shape")]
    if only_user(found.outputs[0]) is not turned or users != [node]:
        return False
    mask, number = found.inputs[0], _filled_with(updates)
    if mask is None or mask.dtype != _Type.BOOL or number is None or values.shape is None:
        return False
    rank, depth = len(values.shape), len(mask.shape) if mask.shape is not None else 0
    masked, whole = sizes(mask, depth), sizes(values, rank)
    if permutation(turned) not in ((), (1, 0)) or not masked or whole is None or depth > rank:
        return False
    if not all(same(one, other) for one, other in zip(masked, whole, strict=False)):
        return False
    kind = values.dtype
    if kind is None or not kernels.has("Where", lambda _: {"T": _spelling(kind)}):
        return False
    if depth < rank and kernels.opset < _AXES_ARE_INPUTS:
        return False
    if depth < rank:
        mask = new.node("Unsqueeze", [mask, new.numbers(list(range(depth, rank)))]).outputs[0]
    chosen = new.node("Where", [mask, new.constant(ir.tensor(number)), values])
    new.place_before(node)
    replace_value(node.outputs[0], chosen.outputs[0])
    return True


def _filled_with(value: ir.Value | None) -> np.ndarray | None:
    """The one number that a value of any size is filled with, as a scalar of its type."""
    for _ in range(_DEEP):
        tensor = constant(value)
        if tensor is not None:
            known = tensor.numpy().reshape(-1)
            return known[0].reshape(()) if known.size and np.all(known == known[0]) else None
        node = value.producer() if value is not None else None
        if node is None or node.domain not in STANDARD:
            return None
        if node.op_type == "ConstantOfShape":
            filled = node.attributes["value"].as_tensor() if node.attributes else None
            return filled.numpy().reshape(()) if filled is not None else np.zeros((), np.float32)
        if node.op_type not in _KEEPING | {"Tile"}:
            return None
        value = node.inputs[0]
    return None
