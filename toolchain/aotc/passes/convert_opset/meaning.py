"""Whether a node keeps its meaning with an older schema of its operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

    Schema = onnx.defs.OpSchema
    Formal = onnx.defs.OpSchema.FormalParameter

# Versions that changed an operator's meaning without changing its schema.
_NEW_MEANING = frozenset({("GroupNormalization", 21), ("RoiAlign", 16)})
# Attribute values that a version introduced.
_NEW_VALUES: Mapping[tuple[str, int], Mapping[str, frozenset[bytes]]] = {
    ("GridSample", 20): {"mode": frozenset({b"linear", b"cubic"})},
    ("Pad", 19): {"mode": frozenset({b"wrap"})},
    ("Resize", 19): {"coordinate_transformation_mode": frozenset({b"half_pixel_symmetric"})},
    ("ScatterElements", 18): {"reduction": frozenset({b"max", b"min"})},
    ("ScatterND", 18): {"reduction": frozenset({b"max", b"min"})},
}


def missing_in_target(node: onnx.NodeProto, source: Schema, target: Schema) -> str:
    """What the target schema cannot express, even with an adapter; empty if nothing."""
    op, before, after = node.op_type, source.since_version, target.since_version
    if any(name == op and after < version <= before for name, version in _NEW_MEANING):
        return "another meaning"
    for attribute in node.attribute:
        if attribute.name not in target.attributes:
            known = source.attributes.get(attribute.name)
            if known is None or not _same_value(attribute, known.default_value):
                return f"no {attribute.name}"
        for (name, version), new in _NEW_VALUES.items():
            changed = name == op and after < version <= before
            if changed and attribute.s in new.get(attribute.name, ()):
                return f"no {attribute.name}={attribute.s.decode()}"
    return ""


def required_by_target(node: onnx.NodeProto, source: Schema, target: Schema) -> str:
    """What the target schema needs beyond the node as it is; empty if nothing."""
    if target.deprecated:
        return "is deprecated"
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in target.attributes.items():
        if name in given:
            continue
        before = source.attributes.get(name)
        if attribute.required:
            return f"needs {name}"
        if before is None:
            return f"has {name} as an attribute"
        if not _same_value(before.default_value, attribute.default_value):
            return f"has another default of {name}"
    if not _match(node.input, source.inputs, target.inputs):
        return "has other inputs"
    return "" if _match(node.output, source.outputs, target.outputs) else "has other outputs"


def _match(values: Sequence[str], source: Sequence[Formal], target: Sequence[Formal]) -> bool:
    """Whether each value is the same parameter in both schemas, and no required one is missing."""
    for index, name in enumerate(values):
        source_parameter, target_parameter = (
            side[min(index, len(side) - 1)] if side else None for side in (source, target)
        )
        if not name:
            continue
        if (
            source_parameter is None
            or target_parameter is None
            or source_parameter.name != target_parameter.name
        ):
            return False
        if index >= len(target) and target_parameter.option != target_parameter.option.Variadic:
            return False
    return all(
        parameter.option == parameter.option.Optional
        or parameter.min_arity == 0
        or (index < len(values) and values[index])
        for index, parameter in enumerate(target)
    )


def _same_value(one: onnx.AttributeProto, other: onnx.AttributeProto) -> bool:
    """Whether two attributes, which may both be unset, have the same value."""
    import onnx

    if one.ref_attr_name or other.ref_attr_name or one.type != other.type:
        return False
    if one.type == one.UNDEFINED:
        return True
    return bool(onnx.helper.get_attribute_value(one) == onnx.helper.get_attribute_value(other))
