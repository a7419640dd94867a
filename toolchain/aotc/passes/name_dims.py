"""Give dims of the graph other names, such as one name to dims that are equal.

Cases: a dim that the model names, wherever it stands (inputs, outputs, inner values, bodies of
control flow); a dim of an input with neither name nor size, addressed as `INPUT.INDEX`; a dim
that is no input's and has one of the new names by accident, which loses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aotc.passes.base import Pass, walk_nodes

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class NameDims(Pass):
    """`names`: new name by the old one, or by `INPUT.INDEX`."""

    names: Mapping[str, str] = field(default_factory=dict)
    name = "name-dims"

    def apply(self, model: onnx.ModelProto) -> None:
        inputs = {dim.dim_param for value in model.graph.input for dim in _dims(value)}
        foreign = set(self.names.values()) - inputs
        for value in _values(model):
            for dim in _dims(value):
                if dim.dim_param in foreign:
                    dim.ClearField("dim_param")
                elif dim.dim_param in self.names:
                    dim.dim_param = self.names[dim.dim_param]
        for value in model.graph.input:
            for index, dim in enumerate(_dims(value)):
                fixed = dim.HasField("dim_value") and dim.dim_value >= 0
                unnamed = not fixed and dim.dim_param in ("", "?")
                if unnamed and f"{value.name}.{index}" in self.names:
                    dim.dim_param = self.names[f"{value.name}.{index}"]

    def ensures(self, model: onnx.ModelProto) -> str:
        kept = self.names.keys() - set(self.names.values())
        left = sorted({dim.dim_param for value in _values(model) for dim in _dims(value)} & kept)
        return f"old names are left: {', '.join(left)}" if left else ""


def _dims(value: onnx.ValueInfoProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    yield from value.type.tensor_type.shape.dim


def _values(model: onnx.ModelProto) -> Iterator[onnx.ValueInfoProto]:
    graphs = [model.graph]
    for node in walk_nodes(model):
        for attribute in node.attribute:
            graphs += [attribute.g] if attribute.HasField("g") else []
            graphs += attribute.graphs
    for graph in graphs:
        yield from (*graph.input, *graph.output, *graph.value_info)
