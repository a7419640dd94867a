"""Remove what exporters leave behind and no runtime reads.

`doc_string` and `metadata_props` contain source paths and stack traces of the exporting machine.
Cases: model, graph, node, value, initializer, function; all control-flow subgraphs.
`training_info` says how the model was trained, with tensors and graphs of its own: inference does
not read it, and its external data would not be part of the artifact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.base.records import record
from aotc.graph.passes.base import Pass
from aotc.graph.view import declared_values, every_graph, every_node

if TYPE_CHECKING:
    import onnx


@record
class StripMetadata(Pass):
    """Clear documentation and metadata everywhere, and what only training reads."""

    name = "strip-metadata"

    def apply(self, model: onnx.ModelProto) -> None:
        _clear(model)
        model.ClearField("training_info")
        for graph in every_graph(model):
            _clear(graph)
            for value in declared_values(graph):
                _clear(value)
            for tensor in graph.initializer:
                _clear(tensor)
        for function in model.functions:
            _clear(function)
        for node in every_node(model):
            _clear(node)
            for attribute in node.attribute:
                attribute.doc_string = ""

    def ensures(self, model: onnx.ModelProto) -> str:
        if model.training_info:
            return "training_info is left"
        left = [node.name for node in every_node(model) if node.doc_string or node.metadata_props]
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
