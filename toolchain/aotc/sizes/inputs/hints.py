"""Hints on the values of a model's inputs, from the operators that read them.

A hint is JSON that `fixtures` draws from.  It holds what the operators' rules request
(`value_rules`, `shape_rules`) and values that the model compares the input with.
Under `or` it holds alternatives for when ONNX Runtime rejects the first values: what other rules
request of the same input, and constants that the model has in such places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.base.records import field, record
from aotc.graph.view import attribute_of
from aotc.sizes.inputs.flow import Flow, Site, Use, difference, minimum
from aotc.sizes.inputs.shape_rules import SHAPE_RULES
from aotc.sizes.inputs.value_rules import IMAGE_RULES, VALUE_RULES, Hint
from aotc.spec.codec import Json
from aotc.spec.providers import MICROSOFT

if TYPE_CHECKING:
    import onnx

# Raised by rules for nodes with too few inputs or with attributes of a wrong type.
_MALFORMED: Final = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
_ONNX_DOMAINS: Final = ("", "ai.onnx", "ai.onnx.ml")
# Operators that pass on all elements of their input in order.
_KEEPS_ORDER: Final = ("Cast", "CastLike", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten")
_WRAPS_OPTIONAL: Final = ("Optional", "OptionalGetElement")
# Operators whose output has the values of the input and no others, in any order.
_KEEPS_ALL_VALUES: Final = frozenset({*_KEEPS_ORDER, *_WRAPS_OPTIONAL, "Transpose", "Expand"})
# By input index: operators that pass on elements reordered, in part, or among others.
_KEEPS_SOME_VALUES: Final = {
    **dict.fromkeys(("Transpose", "Expand", "Tile", "Pad", "Slice", "Split", "Abs"), (0,)),
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "Clip", "Relu", "TopK"), (0,)),
    "Where": (1, 2),
    "Max": (0, 1),
    "Min": (0, 1),
}
# Operators that read a shape or a count, for when no rule says more.
_READS_SHAPE: Final = (
    *("Reshape", "Expand", "Tile", "ConstantOfShape", "Range", "TopK", "Slice", "Loop", "OneHot"),
)
# Operators whose first input decides, too.
_DECIDED_BY_VALUES: Final = frozenset(
    {*("Loop", "ConstantOfShape", "Range", "If", "NonZero", "Compress", "Unique"), "SequenceAt"}
)
# Kinds of hints that come from what an operator allows.
_TOLD: Final = frozenset(
    {*("index", "columns", "vector", "split", "boxes", "full", "ones", "choice"), "zero_point"}
)
# FLOAT, FLOAT16, DOUBLE and BFLOAT16 of onnx.TensorProto.
_FLOATING: Final = frozenset({1, 10, 11, 16})
_MAX_CHOICES: Final = 16
# A limit on the work for one input: how many values are followed.
_MAX_FOLLOWED_VALUES: Final = 4096
# Alternatives to the first hint of one input.
_MAX_ALTERNATIVES: Final = 4
# Turns a hint on a node's output into one on its input; None if it says nothing about it.
_HintMap = Callable[[Hint], Hint | None]


def hints_of(model: onnx.ModelProto) -> dict[str, dict[str, Json]]:
    """The hints of the graph inputs that have one, by input name.

    An index stays within the axis that it indexes; shapes and axes fit the data and the declared
    output; an input that Equal compares with constants takes their values; an input with "mask" in
    its name gets ones.  A node without a rule gives no hint.
    """
    flow = Flow(model)
    hints: dict[str, dict[str, Json]] = {}
    for value in flow.inputs:
        try:
            hint = _HintCollector(flow, value).hint()
        except _MALFORMED:
            # ONNX Runtime reports what is wrong with the node.
            hint = {}
        if value.type.optional_type.elem_type.HasField("sequence_type"):
            hint["list"] = True
        if hint:
            hints[value.name] = hint
    return hints


def doubtful_inputs(
    model: onnx.ModelProto, hints: Mapping[str, Mapping[str, Json]]
) -> frozenset[str]:
    """Graph inputs of which nobody knows valid values, although a run may fail because of them.

    They reach a place where values decide: a shape, an index, a length, a condition.  Of floats
    only single numbers and vectors count: the values of an image decide where its boxes are, too.
    """
    flow = Flow(model)
    return frozenset(
        value.name
        for value in flow.inputs
        if hints.get(value.name, {}).get("kind") not in _TOLD
        if _may_be_number(value) and _decides(flow, value.name)
    )


def _may_be_number(value: onnx.ValueInfoProto) -> bool:
    kind = value.type.tensor_type
    dims = kind.shape.dim if kind.HasField("shape") else ()
    few = (
        all(dim.HasField("dim_value") for dim in dims)
        and math.prod(dim.dim_value for dim in dims) <= _MAX_CHOICES
    )
    return kind.elem_type not in _FLOATING or len(dims) < 2 or few


def _decides(flow: Flow, name: str) -> bool:
    """Whether values computed from `name` are read where they decide what runs."""
    pending, seen = [name], {name}
    while pending and len(seen) < _MAX_FOLLOWED_VALUES:
        value = pending.pop()
        found = list(flow.links.get(value, ()))
        for site, index in flow.consumers.get(value, ()):
            kind = site.node.op_type
            if kind in _DECIDED_BY_VALUES or (index > 0 and _is_rule_on_values(site, index)):
                return True
            if kind not in ("Shape", "Size"):
                found += [output for output in site.outputs if output]
        pending += [other for other in found if other not in seen]
        seen.update(found)
    return False


def _is_rule_on_values(site: Site, index: int) -> bool:
    kind = site.node.op_type
    return kind in _READS_SHAPE or kind in SHAPE_RULES or index in _rules(site.node)


def _unchanged(hint: Hint) -> Hint | None:
    return hint


def _if_elementwise(hint: Hint) -> Hint | None:
    """The hint, if it holds for every element wherever it stands."""
    return hint if hint["kind"] not in ("vector", "split", "columns", "boxes") else None


def _ones_of_a_count(hint: Hint) -> Hint | None:
    """From a hint on a number of ones to the ones that are counted, as those of a mask."""
    return {"kind": "ones"} if hint["kind"] in ("index", "full") else None


@record(frozen=False, kw_only=False)
class _HintCollector:
    """Everything that a model's nodes request of one graph input."""

    flow: Flow
    value: onnx.ValueInfoProto
    requested: list[Hint] = field(default_factory=list)
    compared_values: list[Json] = field(default_factory=list)
    seen_constants: list[Hint] = field(default_factory=list)
    fallback_kind: str = ""
    is_shape_like: bool = False
    """Whether an operator reads it as a shape, axes or the like: few values are valid."""

    def hint(self) -> dict[str, Json]:
        self._follow_consumers()
        self.requested = [hint for hint in self.requested if self._fits(hint)]
        indices = [hint for hint in self.requested if hint["kind"] == "index"]
        others = [hint for hint in self.requested if hint["kind"] != "index"]
        ordered: list[Hint] = []
        if indices:
            within = _intersection(indices)
            numbers = [value for value in self.compared_values if isinstance(value, int)]
            ordered.append({**within, "among": numbers} if numbers else within)
        elif self.compared_values:
            ordered.append({"kind": "choice", "values": self.compared_values})
        exact = [hint for hint in others if hint["kind"] in ("vector", "columns", "split")]
        ordered[:0] = exact
        ordered += [hint for hint in others if hint not in exact]
        if "mask" in self.value.name.lower() and not any(
            hint["kind"] in ("index", "choice", "vector") for hint in ordered
        ):
            ordered.insert(0, {"kind": "ones"})
        if not ordered and not self.is_shape_like and self.seen_constants:
            ordered.append({})
        ordered += self.seen_constants
        if self.fallback_kind:
            ordered.append({"kind": self.fallback_kind})
        first, *rest = _distinct(ordered) or [{}]
        rest = [hint for hint in rest if hint["kind"] not in ("small", "positive")]
        rest = rest[:_MAX_ALTERNATIVES]
        return {**first, "or": rest} if rest else dict(first)

    def _follow_consumers(self) -> None:
        pending: list[tuple[str, _HintMap, bool]] = [(self.value.name, _unchanged, True)]
        seen = {self.value.name}
        while pending and len(seen) < _MAX_FOLLOWED_VALUES:
            name, hint_map, keeps_all = pending.pop()
            successors: list[tuple[str, _HintMap, bool]] = []
            for site, index in self.flow.consumers.get(name, ()):
                if keeps_all:
                    self._note_compared_values(site, index)
                self._apply_rule(site, index, hint_map)
                kept = keeps_all and site.node.op_type in _KEEPS_ALL_VALUES
                successors += [
                    (target, _composed(step, hint_map), kept)
                    for target, step in self._successors(site, index)
                ]
            successors += [
                (target, hint_map, keeps_all) for target in self.flow.links.get(name, ())
            ]
            for successor in successors:
                target = successor[0]
                if target and target not in seen:
                    seen.add(target)
                    pending.append(successor)

    def _note_compared_values(self, site: Site, index: int) -> None:
        """Note what a node reveals that reads all values of the input and no others."""
        node = site.node
        kind = node.op_type
        if kind == "Equal":
            against = self.flow.constant(site.inputs[1 - index])
            if against is not None:
                self.compared_values += _finite(np.ravel(against).tolist()[:_MAX_CHOICES])
        elif kind in ("LabelEncoder", "CategoryMapper", "OneHotEncoder"):
            self.compared_values.extend(_encoder_keys(node))
        elif kind in ("Log", "Sqrt", "ReduceLogSum") and index == 0:
            self.fallback_kind = self.fallback_kind or "positive"
        elif kind in _READS_SHAPE and (index > 0 or kind in ("Loop", "ConstantOfShape", "Range")):
            self.fallback_kind = self.fallback_kind or "small"
        elif kind == "Cast" and self._dtype() == "STRING":
            self.compared_values.extend(_numeric_texts(node))

    def _apply_rule(self, site: Site, index: int, hint_map: _HintMap) -> None:
        rule = _rules(site.node).get(index)
        if rule is None:
            return
        requested = rule(Use(self.flow, site, index))
        mapped = hint_map(requested) if requested is not None else None
        if mapped is not None:
            self.requested.append(mapped)
        kind = site.node.op_type
        if "INT" in self._dtype() and len(self.seen_constants) < _MAX_ALTERNATIVES:
            seen = (hint_map(hint) for hint in self._constants_elsewhere(kind, index))
            self.seen_constants += [hint for hint in seen if hint is not None]
        self.is_shape_like |= kind in SHAPE_RULES or kind in IMAGE_RULES

    def _constants_elsewhere(self, kind: str, index: int) -> Iterator[Hint]:
        """Hints from constants at the same input index of operators of the same type."""
        for value in dict.fromkeys(self.flow.readers.get((kind, index), ())):
            array = self.flow.constant(value)
            if array is not None and array.dtype.kind in "iu" and 0 < array.size <= _MAX_CHOICES:
                values = array.ravel().tolist()
                known = {"values": values} if array.ndim else {"value": values[0]}
                yield {"kind": "vector" if array.ndim else "full", **known}

    def _successors(self, site: Site, index: int) -> Iterator[tuple[str, _HintMap]]:
        kind = site.node.op_type
        if kind == "Cast" and self._dtype() == "STRING":
            return
        if (kind in _KEEPS_ORDER or kind in _WRAPS_OPTIONAL) and index == 0:
            yield site.outputs[0], _unchanged
        elif index in _KEEPS_SOME_VALUES.get(kind, ()):
            for output in site.outputs[:1] if kind == "TopK" else site.outputs:
                yield output, _if_elementwise
        elif kind == "Concat":
            yield site.outputs[0], self._concatenated_part(site, index)
        elif kind in ("ReduceMax", "ReduceMin") and index == 0:
            yield site.outputs[0], _if_elementwise
        elif kind == "ReduceSum" and index == 0:
            yield site.outputs[0], _ones_of_a_count
        elif kind in ("Add", "Sub") and (kind == "Add" or index == 0):
            against = self.flow.constant(site.inputs[1 - index])
            if against is not None and against.size == 1 and against.dtype.kind in "iu":
                shift = int(against.ravel()[0])
                yield site.outputs[0], _shifted_by(shift if kind == "Add" else -shift)

    def _concatenated_part(self, site: Site, index: int) -> _HintMap:
        """From a hint on a concatenated vector to the elements that come from input `index`."""
        shapes = [self.flow.shape(value) for value in site.inputs[: index + 1]]
        lengths = [
            shape[0] if shape and len(shape) == 1 and isinstance(shape[0], int) else None
            for shape in shapes
        ]

        def part(hint: Hint) -> Hint | None:
            if hint["kind"] == "columns":
                return self._column(hint, site, index)
            if hint["kind"] != "vector":
                return _if_elementwise(hint)
            known = [length for length in lengths if length is not None]
            if len(known) < len(lengths):
                return None
            values = hint["values"][sum(known[:-1]) : sum(known)]
            return {"kind": "vector", "values": values} if values else None

        return part

    def _column(self, hint: Hint, site: Site, index: int) -> Hint | None:
        """From a hint on columns to the one that input `index` holds."""
        rank = next((len(s) for v in site.inputs if (s := self.flow.shape(v)) is not None), 0)
        single = len(site.inputs) == len(hint["highs"])
        if single and rank and attribute_of(site.node, "axis", 0) in (-1, rank - 1):
            return {"kind": "index", "high": hint["highs"][index]}
        return None

    def _dtype(self) -> str:
        from onnx import TensorProto

        return str(TensorProto.DataType.Name(self._tensor_type().elem_type))

    def _tensor_type(self) -> Any:
        kind = self.value.type
        if kind.HasField("sequence_type"):
            return kind.sequence_type.elem_type.tensor_type
        if kind.HasField("optional_type"):
            inner = kind.optional_type.elem_type
            nested = inner.HasField("sequence_type")
            return inner.sequence_type.elem_type.tensor_type if nested else inner.tensor_type
        return kind.tensor_type

    def _fits(self, hint: Hint) -> bool:
        """Whether the hint applies to values of this type."""
        dtype, kind = self._dtype(), hint["kind"]
        integer = "INT" in dtype
        if kind == "divisor":
            return integer
        if kind == "zero_point":
            return dtype.startswith(("FLOAT4", "FLOAT8", "INT32"))
        return dtype != "STRING" and (integer or dtype != "BOOL" or kind == "full")


def _rules(node: onnx.NodeProto) -> dict[int, Callable[[Use], Hint | None]]:
    name = node.op_type
    if node.domain == MICROSOFT:
        own = f"com.microsoft.{name}"
        name = own if own in VALUE_RULES else name
    elif node.domain not in _ONNX_DOMAINS:
        return {}
    return {
        index: rule
        for rules in (SHAPE_RULES, IMAGE_RULES, VALUE_RULES)
        for index, rule in rules.get(name, {}).items()
    }


def _composed(step: _HintMap, hint_map: _HintMap) -> _HintMap:
    def both(hint: Hint) -> Hint | None:
        nearer = step(hint)
        return hint_map(nearer) if nearer is not None else None

    return both


def _shifted_by(by: int) -> _HintMap:
    """From a hint on the sum to the hint on the value to which `by` is added."""

    def shifted(hint: Hint) -> Hint | None:
        if hint["kind"] == "index":
            low = hint.get("low", 0) - by
            return {**hint, "high": difference(hint["high"], by), "low": low}
        if hint["kind"] == "full":
            return {**hint, "value": difference(hint["value"], by)}
        if hint["kind"] == "vector":
            if any(isinstance(value, float) for value in hint["values"]):
                return None
            return {**hint, "values": [difference(value, by) for value in hint["values"]]}
        return None

    return shifted


def _intersection(indices: Sequence[Hint]) -> Hint:
    hint: Hint = {"kind": "index", "high": minimum(*(_unique(index["high"] for index in indices)))}
    low = max(index.get("low", 0) for index in indices)
    if low or any("low" in index for index in indices):
        hint["low"] = low
    distinct = [index["distinct"] for index in indices if "distinct" in index]
    if distinct:
        hint["distinct"] = distinct[0]
    return hint


def _unique(extents: Iterator[Json]) -> list[Json]:
    found: list[Json] = []
    for extent in extents:
        if extent not in found:
            found.append(extent)
    fixed = [extent for extent in found if isinstance(extent, int)]
    return [*([min(fixed)] if fixed else []), *(e for e in found if not isinstance(e, int))]


def _finite(values: Sequence[Json]) -> list[Json]:
    """The values that JSON can represent."""
    return [value for value in values if not isinstance(value, float) or math.isfinite(value)]


def _distinct(hints: Sequence[Hint]) -> list[Hint]:
    found: list[Hint] = []
    for hint in hints:
        if hint not in found:
            found.append(hint)
    return found


def _encoder_keys(node: onnx.NodeProto) -> list[Json]:
    found: list[Json] = []
    for attribute in node.attribute:
        if attribute.name in ("keys_strings", "cats_strings"):
            found += [text.decode("utf-8", "replace") for text in attribute.strings[:_MAX_CHOICES]]
        elif attribute.name in ("keys_int64s", "cats_int64s"):
            found += list(attribute.ints[:_MAX_CHOICES])
    return found


def _numeric_texts(node: onnx.NodeProto) -> list[Json]:
    """Text that Cast parses as numbers of its target type."""
    from onnx import TensorProto

    to = attribute_of(node, "to", 0)
    name = TensorProto.DataType.Name(to)
    if "FLOAT" in name or name == "DOUBLE":
        return ["1", "2.5", "-0.75"]
    return ["1", "7", "12"] if "INT" in name or name == "BOOL" else []
