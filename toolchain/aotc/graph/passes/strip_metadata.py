"""Remove what exporters leave behind and no runtime reads.

`doc_string` and `metadata_props` contain source paths and stack traces of the exporting machine.
Cases: model, graph, node, value, initializer, function; all control-flow subgraphs.
`training_info` says how the model was trained, with tensors and graphs of its own: inference does
not read it, and its external data would not be part of the artifact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.base.records import record
from aotc.graph.passes.base import Pass, walk_nodes
from aotc.graph.view import subgraphs

if TYPE_CHECKING:
    import onnx


@record
class StripMetadata(Pass):
    """Clear documentation and metadata everywhere, and what only training reads."""

    name = "strip-metadata"

    def apply(self, model: onnx.ModelProto) -> None:
        _clear(model)
        model.ClearField("training_info")
        _clear_graph(model.graph)
        for function in model.functions:
            _clear(function)
        for node in walk_nodes(model):
            _clear(node)
            for attribute in node.attribute:
                attribute.doc_string = ""
            for subgraph in subgraphs(node):
                _clear_graph(subgraph)

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


def _clear_graph(graph: onnx.GraphProto) -> None:
    _clear(graph)
    for value in (*graph.input, *graph.output, *graph.value_info):
        _clear(value)
    for tensor in graph.initializer:
        _clear(tensor)
