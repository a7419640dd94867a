"""Casts at inputs and outputs that are in half precision where the model inside is in float32.

When the inside is changed to the same type, they become casts from a type to itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.backends.kernels.type_names import stated_types
from aotc.passes.base import rename_read

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx

    from aotc.passes.half_precision.half_types import HalfType


def fold_casts(model: onnx.ModelProto, half: HalfType) -> None:
    """Remove casts of the main graph from `half` to `half`; its values must all have types.

    One stays where it passes an input or a constant on as an output, or one output as another.
    """
    graph = model.graph
    types = stated_types(graph)
    outputs = {value.name for value in graph.output}
    makers = {name: node for node in graph.node for name in node.output}
    for cast in list(graph.node):
        if not _is_idle(cast, types, half):
            continue
        source, target = cast.input[0], cast.output[0]
        if target not in outputs:
            renamed = {target: source}
        elif source in makers and source not in outputs:
            maker = makers[target] = makers[source]
            maker.output[list(maker.output).index(source)] = target
            renamed = {source: target}
        else:
            continue
        graph.node.remove(cast)
        rename_read(graph.node, renamed)
        infos = [info for info in graph.value_info if info.name not in renamed]
        del graph.value_info[:]
        graph.value_info.extend(infos)


def _is_idle(node: onnx.NodeProto, types: Mapping[str, str], half: HalfType) -> bool:
    return (
        node.op_type == "Cast"
        and types.get(node.input[0]) == half.tensor_name
        and any(one.name == "to" and one.i == half.onnx_type for one in node.attribute)
    )


def interface_elements(graph: onnx.GraphProto) -> set[int]:
    """The element types in which inputs are read and outputs made, apart from casts there."""
    readers: dict[str, list[onnx.NodeProto]] = {value.name: [] for value in graph.input}
    cast = set()
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
        if node.op_type == "Cast":
            cast.add(node.output[0])
    found = {value.type.tensor_type.elem_type for value in graph.output if value.name not in cast}
    for value in graph.input:
        if readers[value.name] and all(node.op_type == "Cast" for node in readers[value.name]):
            for node in readers[value.name]:
                found.update(one.i for one in node.attribute if one.name == "to")
        else:
            found.add(value.type.tensor_type.elem_type)
    return found
