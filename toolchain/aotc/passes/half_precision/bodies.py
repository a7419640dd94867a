"""Bodies of control flow as models of their own, which half precision changes like a main graph.

What a body captures are its inputs then, or constants; it enters and leaves it in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.backends.kernels.type_names import stated_types, subgraphs, type_proto
from aotc.partitioning.graph import captured_values
from aotc.passes.half_precision.typed_graph import lift_constants

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from aotc.passes.half_precision.typed_graph import TypedGraph


def has_bodies(node: onnx.NodeProto) -> bool:
    """Whether a node has subgraphs."""
    return any(True for _ in subgraphs(node))


def body_models(
    graph: TypedGraph, node: onnx.NodeProto
) -> Iterator[tuple[onnx.GraphProto, onnx.ModelProto]]:
    """Each body of a node of `graph`, and a copy of it as a model.

    Bodies with values of unknown type, or that capture such values, are left out.
    """
    import onnx

    for _, body in subgraphs(node):
        made = onnx.ModelProto(
            ir_version=graph.model.ir_version, opset_import=graph.model.opset_import
        )
        made.graph.CopyFrom(body)
        lift_constants(made)
        types = stated_types(made.graph)
        known = True
        for name in sorted(captured_values(made.graph)):
            if name in graph.constants:
                made.graph.initializer.append(graph.constants[name])
                continue
            kind = type_proto(graph.types.get(name, ""))
            if kind is None:
                known = False
                break
            made.graph.input.append(onnx.ValueInfoProto(name=name, type=kind))
        if known and all(
            name in types for inner in made.graph.node for name in inner.output if name
        ):
            yield body, made


def adopt_body(body: onnx.GraphProto, model: onnx.ModelProto) -> None:
    """Give `body` the nodes of its changed model, without what it captures."""
    outer = captured_values(body)
    own = [tensor for tensor in model.graph.initializer if tensor.name not in outer]
    made = {name for node in model.graph.node for name in node.output}
    infos = [info for info in model.graph.value_info if info.name in made]
    del body.node[:], body.initializer[:], body.value_info[:]
    body.node.extend(model.graph.node)
    body.initializer.extend(own)
    body.value_info.extend(infos)
