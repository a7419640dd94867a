"""Give dims of the graph their names in the artifact.

Cases: an input's dim with neither name nor size, or with a name that says nothing, such as `None`,
becomes `INPUT.INDEX`; such a name of any other value is removed; a dim that the model names gets
its new name wherever it occurs (inputs, outputs, inner values, control-flow subgraphs); a dim that
belongs to no input and has one of the new names by accident loses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from aotc.base.records import field, record
from aotc.graph.passes.base import Pass
from aotc.graph.view import declared_values, inner_graphs
from aotc.spec.relations import is_anonymous

if TYPE_CHECKING:
    import onnx


@record
class NameDims(Pass):
    """`names`: new name by the old one, or by `INPUT.INDEX`.

    `clashing`: the temporary name of a dim whose name is the `INPUT.INDEX` of another.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    clashing: Mapping[str, str] = field(default_factory=dict)
    name = "name-dims"

    def has_work(self, model: onnx.ModelProto) -> bool:
        """Whether any dim of `model` needs another name."""
        if self.names or self.clashing:
            return True
        if any(_is_nameless(d) for value in model.graph.input for d in _dims(value.type)):
            return True
        inner = (dim.dim_param for value in _inner_values(model) for dim in _dims(value.type))
        return any(name and is_anonymous(name) for name in inner)

    def apply(self, model: onnx.ModelProto) -> None:
        known = {self._first(dim) for value in model.graph.input for dim in _dims(value.type)}
        given = set(self.names.values())
        others = list(_inner_values(model))
        for value in model.graph.input:
            if not value.type.HasField("tensor_type"):
                others.append(value)
                continue
            for index, dim in enumerate(_dims(value.type)):
                if dim.HasField("dim_value") and dim.dim_value >= 0:
                    continue
                name = self._first(dim)
                if _is_nameless(dim):
                    name = f"{value.name}.{index}"
                    given.add(name)
                dim.dim_param = self.names.get(name, name)
        for value in others:
            for dim in _dims(value.type):
                name = self._first(dim)
                if is_anonymous(name) or name in given - known:
                    dim.ClearField("dim_param")
                else:
                    dim.dim_param = self.names.get(name, name)

    def _first(self, dim: onnx.TensorShapeProto.Dimension) -> str:
        return self.clashing.get(dim.dim_param, dim.dim_param)

    def ensures(self, model: onnx.ModelProto) -> str:
        kept = self.names.keys() - set(self.names.values())
        values = (*model.graph.input, *_inner_values(model))
        names = {dim.dim_param for value in values for dim in _dims(value.type)} - {""}
        left = sorted(name for name in names if name in kept or is_anonymous(name))
        return f"old names are left: {', '.join(left)}" if left else ""


def _is_nameless(dim: onnx.TensorShapeProto.Dimension) -> bool:
    fixed = dim.HasField("dim_value") and dim.dim_value >= 0
    return not fixed and is_anonymous(dim.dim_param)


def _dims(proto: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """Dims of a tensor, and of the tensors in a sequence, an optional or a map."""
    case = proto.WhichOneof("value")
    if case in ("sequence_type", "optional_type"):
        yield from _dims(getattr(proto, case).elem_type)
    elif case == "map_type":
        yield from _dims(proto.map_type.value_type)
    elif case == "tensor_type":
        yield from proto.tensor_type.shape.dim


def _inner_values(model: onnx.ModelProto) -> Iterator[onnx.ValueInfoProto]:
    """All typed values except the inputs of the model."""
    yield from (*model.graph.output, *model.graph.value_info)
    for _, graph in inner_graphs(model):
        yield from declared_values(graph)
    for function in model.functions:
        yield from function.value_info
