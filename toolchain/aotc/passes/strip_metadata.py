"""Strip what exporters leave behind and no runtime reads.

`doc_string` and `metadata_props` hold source paths and stack traces of the exporting machine.
Cases: model, graph, node, value, initializer, function; all bodies of control flow.
`training_info` holds how the model was trained, with tensors and graphs of its own: inference
reads none of it, and its external data would be no part of the artifact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.passes.base import Pass, walk_nodes
from aotc.records import record

if TYPE_CHECKING:
    import onnx


@record
class StripMetadata(Pass):
    """Clear documentation and metadata everywhere, and what only training reads."""

    name = "strip-metadata"

    def apply(self, model: onnx.ModelProto) -> None:
        _clear(model)
        model.ClearField("training_info")
        _graph(model.graph)
        for function in model.functions:
            _clear(function)
        for node in walk_nodes(model):
            _clear(node)
            for attribute in node.attribute:
                attribute.doc_string = ""
                if attribute.HasField("g"):
                    _graph(attribute.g)
                for body in attribute.graphs:
                    _graph(body)

    def ensures(self, model: onnx.ModelProto) -> str:
        if model.training_info:
            return "training_info is left"
        left = [node.name for node in walk_nodes(model) if node.doc_string or node.metadata_props]
        return f"metadata on {left[:3]}" if left or model.metadata_props else ""


def _clear(
    proto: onnx.ModelProto
    | onnx.GraphProto
    | onnx.FunctionProto
    | onnx.NodeProto
    | onnx.ValueInfoProto
    | onnx.TensorProto,
) -> None:
    proto.doc_string = ""
    proto.ClearField("metadata_props")


def _graph(graph: onnx.GraphProto) -> None:
    _clear(graph)
    for value in (*graph.input, *graph.output, *graph.value_info):
        _clear(value)
    for tensor in graph.initializer:
        _clear(tensor)
