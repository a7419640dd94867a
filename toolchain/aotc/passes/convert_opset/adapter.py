"""One node through the version converter of the onnx package, which knows how operators changed.

A whole model is not given to it: it drops functions, and stops at
the first node without an adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.passes.convert_opset.known_values import Values

if TYPE_CHECKING:
    import onnx

    Nodes = list[onnx.NodeProto]


def adapted(node: onnx.NodeProto, opset: int, to: int, values: Values) -> Nodes | None:
    """The node as the onnx package's version converter has it; None where it has no adapter."""
    import onnx

    if any(each.HasField("g") or each.graphs for each in node.attribute):
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
    alone = onnx.helper.make_model(
        onnx.helper.make_graph([node], "node", inputs, outputs, constants),
        opset_imports=[onnx.helper.make_opsetid("", opset)],
    )
    try:
        graph = onnx.version_converter.convert_version(alone, to).graph
    except (RuntimeError, ValueError, onnx.version_converter.ConvertError):
        return None
    if [each.name for each in graph.output] != [each.name for each in outputs]:
        return None
    outer = {*node.input, *node.output}
    made = _spliced(graph, node, outer | {""}, to)
    read = {name for one in made for name in one.input}
    whole = all(each.name in read for each in inputs)
    return made if whole and all(_valid(one, to) for one in made) else None


def _valid(node: onnx.NodeProto, opset: int) -> bool:
    """Whether the operator has what the node says: some adapters change the version alone."""
    import onnx

    schema = onnx.defs.get_schema(node.op_type, opset)
    given = {attribute.name for attribute in node.attribute}
    needed = {name for name, attribute in schema.attributes.items() if attribute.required}
    return (
        needed <= given <= schema.attributes.keys()
        and schema.min_input <= len(node.input) <= schema.max_input
        and len(node.output) <= schema.max_output
    )


def _spliced(graph: onnx.GraphProto, node: onnx.NodeProto, outer: set[str], to: int) -> Nodes:
    """Nodes of a converted graph, with inner values named after `node` and made by nodes alone."""
    import onnx

    made = [
        onnx.helper.make_node("Constant", [], [tensor.name], value=tensor)
        for tensor in graph.initializer
        if tensor.name not in outer
    ]
    made += graph.node
    for one in made:
        for names in (one.input, one.output):
            for index, name in enumerate(names):
                if name not in outer:
                    names[index] = f"{node.output[0]}/opset{to}/{name}"
    return made
