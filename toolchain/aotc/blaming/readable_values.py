"""A variant's graph that also gives its values as the source has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import onnx

from aotc.blaming.layouts import BLOCKED_DOMAIN

if TYPE_CHECKING:
    from aotc.blaming.matched_values import MatchedValue


def readable_values(
    model: onnx.ModelProto,
    matched: Sequence[MatchedValue],
    shapes: Mapping[str, tuple[int, ...]],
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """A copy of `model` that dequantizes integers and has channels first; names by source's value.

    `shapes` are those of the source.  External data stays where it is.
    """
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    places: dict[str, str] = {}

    def add(op: str, given: list[str], name: str, domain: str = "", **options: object) -> str:
        made = f"{name}/aotc.{op}"
        node = onnx.helper.make_node(op, given, [made], domain=domain, **options)
        shown.graph.node.append(node)
        return made

    for value in matched:
        place, shape = value.place, shapes[value.name]
        name = place.value
        if place.layout == "blocked" and len(shape) == 4:
            name = add("ReorderOutput", [name], value.name, BLOCKED_DOMAIN, channels=shape[1])
        if place.scale:
            given = [name, place.scale, *([place.zero_point] if place.zero_point else [])]
            name = add("DequantizeLinear", given, value.name)
        if place.layout == "channels-last" and len(shape) > 2:
            axes = [0, len(shape) - 1, *range(1, len(shape) - 1)]
            name = add("Transpose", [name], value.name, perm=axes)
        places[value.name] = name
    return shown, places
