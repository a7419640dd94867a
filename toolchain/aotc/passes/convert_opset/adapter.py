"""Converting one node with the version converter of the onnx package, which knows the operators.

It is not given a whole model, because it drops functions and stops at the first node without an
adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.passes.convert_opset.known_values import Values

if TYPE_CHECKING:
    import onnx

    Nodes = list[onnx.NodeProto]


def converted_node(node: onnx.NodeProto, opset: int, to: int, values: Values) -> Nodes | None:
    """The node as the onnx package's version converter writes it; None if it has no adapter."""
    import onnx

    if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
        return None
    inputs: list[onnx.ValueInfoProto] = []
    constants: list[onnx.TensorProto] = []
    for name in dict.fromkeys(name for name in node.input if name):
        tensor, info = values.constants.get(name), values.infos.get(name)
        if tensor is not None:
            constants.append(tensor)
        elif info is not None:
            inputs.append(info)
        else:
            return None
    outputs = [
        values.infos.get(name) or onnx.helper.make_empty_tensor_value_info(name)
        for name in node.output
        if name
    ]
    single_node_model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "node", inputs, outputs, constants),
        opset_imports=[onnx.helper.make_opsetid("", opset)],
    )
    try:
        graph = onnx.version_converter.convert_version(single_node_model, to).graph
    except (RuntimeError, ValueError, onnx.version_converter.ConvertError):
        return None
    if [value.name for value in graph.output] != [value.name for value in outputs]:
        return None
    outer = {*node.input, *node.output}
    replacements = _inlined(graph, node, outer | {""}, to)
    read = {name for new_node in replacements for name in new_node.input}
    uses_all_inputs = all(value.name in read for value in inputs)
    return (
        replacements
        if uses_all_inputs and all(_matches_schema(new_node, to) for new_node in replacements)
        else None
    )


def _matches_schema(node: onnx.NodeProto, opset: int) -> bool:
    """Whether a node matches its operator's schema: some adapters only change the version."""
    import onnx

    schema = onnx.defs.get_schema(node.op_type, opset)
    given = {attribute.name for attribute in node.attribute}
    needed = {name for name, attribute in schema.attributes.items() if attribute.required}
    return (
        needed <= given <= schema.attributes.keys()
        and schema.min_input <= len(node.input) <= schema.max_input
        and len(node.output) <= schema.max_output
    )


def _inlined(graph: onnx.GraphProto, node: onnx.NodeProto, outer: set[str], to: int) -> Nodes:
    """Nodes of a converted graph; inner values get names after `node`, constants become nodes."""
    import onnx

    replacements = [
        onnx.helper.make_node("Constant", [], [tensor.name], value=tensor)
        for tensor in graph.initializer
        if tensor.name not in outer
    ]
    replacements += graph.node
    for new_node in replacements:
        for names in (new_node.input, new_node.output):
            for index, name in enumerate(names):
                if name not in outer:
                    names[index] = f"{node.output[0]}/opset{to}/{name}"
    return replacements
