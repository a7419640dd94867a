"""Whether a node means the same by an older schema of its operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

    Schema = onnx.defs.OpSchema
    Formal = onnx.defs.OpSchema.FormalParameter

# Versions that gave an operator another meaning, which their schemas do not show.
_NEW_MEANING = frozenset({("GroupNormalization", 21), ("RoiAlign", 16)})
# Values of attributes that came with a version.
_NEW_VALUES: Mapping[tuple[str, int], Mapping[str, frozenset[bytes]]] = {
    ("GridSample", 20): {"mode": frozenset({b"linear", b"cubic"})},
    ("Pad", 19): {"mode": frozenset({b"wrap"})},
    ("Resize", 19): {"coordinate_transformation_mode": frozenset({b"half_pixel_symmetric"})},
    ("ScatterElements", 18): {"reduction": frozenset({b"max", b"min"})},
    ("ScatterND", 18): {"reduction": frozenset({b"max", b"min"})},
}


def lost(node: onnx.NodeProto, source: Schema, target: Schema) -> str:
    """What the target cannot say, so that no adapter could keep it; empty where it says all."""
    op, before, after = node.op_type, source.since_version, target.since_version
    if any(name == op and after < version <= before for name, version in _NEW_MEANING):
        return "another meaning"
    for attribute in node.attribute:
        if attribute.name not in target.attributes:
            known = source.attributes.get(attribute.name)
            if known is None or not _same_value(attribute, known.default_value):
                return f"no {attribute.name}"
        for (name, version), new in _NEW_VALUES.items():
            crossed = name == op and after < version <= before
            if crossed and attribute.s in new.get(attribute.name, ()):
                return f"no {attribute.name}={attribute.s.decode()}"
    return ""


def gap(node: onnx.NodeProto, source: Schema, target: Schema) -> str:
    """What the target asks that the node does not say; empty where it means the same as it is."""
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
    if not _fit(node.input, source.inputs, target.inputs):
        return "has other inputs"
    return "" if _fit(node.output, source.outputs, target.outputs) else "has other outputs"


def _fit(values: Sequence[str], source: Sequence[Formal], target: Sequence[Formal]) -> bool:
    """Whether each value stands for the same parameter of both, and none is missing."""
    for index, name in enumerate(values):
        here, there = (
            side[min(index, len(side) - 1)] if side else None for side in (source, target)
        )
        if not name:
            continue
        if here is None or there is None or here.name != there.name:
            return False
        if index >= len(target) and there.option != there.option.Variadic:
            return False
    return all(
        parameter.option == parameter.option.Optional
        or parameter.min_arity == 0
        or (index < len(values) and values[index])
        for index, parameter in enumerate(target)
    )


def _same_value(one: onnx.AttributeProto, other: onnx.AttributeProto) -> bool:
    """Whether two attributes, which may both be unset, hold the same."""
    import onnx

    if one.ref_attr_name or other.ref_attr_name or one.type != other.type:
        return False
    if one.type == one.UNDEFINED:
        return True
    return bool(onnx.helper.get_attribute_value(one) == onnx.helper.get_attribute_value(other))
