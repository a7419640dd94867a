"""Passes of the import: what is removed, and what gets its name and type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from aotc.base.records import field, record
from aotc.graph.passes.base import Pass, all_names, cast_node, free_name, rename_read, set_nodes
from aotc.graph.view import declared_values, every_graph, every_node, inner_graphs
from aotc.spec.relations import is_anonymous

if TYPE_CHECKING:
    import onnx


# Remove what exporters leave behind and no runtime reads.
#
# `doc_string` and `metadata_props` contain source paths and stack traces of the exporting machine.
# Cases: model, graph, node, value, initializer, function; all control-flow subgraphs.
# `training_info` says how the model was trained, with tensors and graphs of its own: inference does
# not read it, and its external data would not be part of the artifact.


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


# Give every node a unique name.
#
# ONNX Runtime reports placement by node name, and does not name unnamed nodes.
# Cases: an empty name; a name that an earlier node has, also in another subgraph or function.


@record
class NameNodes(Pass):
    """Name nodes by operator type and position; unique names are kept."""

    name = "name-nodes"

    def apply(self, model: onnx.ModelProto) -> None:
        taken = {node.name for node in every_node(model)}
        seen: set[str] = set()
        numbers: Counter[str] = Counter()
        for node in every_node(model):
            if not node.name or node.name in seen:
                stem = node.name or node.op_type
                while (name := f"{stem}_{numbers[stem]}") in taken:
                    numbers[stem] += 1
                taken.add(name)
                node.name = name
            seen.add(node.name)

    def ensures(self, model: onnx.ModelProto) -> str:
        names = [node.name for node in every_node(model)]
        return "" if "" not in names and len(set(names)) == len(names) else "names are not unique"


# Remove initializers from the graph inputs.
#
# Up to IR version 3 every initializer had to be a graph input as well; later that means that a
# caller
# may override it, which prevents constant folding.  Cases: IR 3 (raised to 4, which allows
# initializers that are not inputs); an overridable initializer in IR 4 and later.


@record
class ConstantInputs(Pass):
    """Make initializers constants."""

    name = "constant-inputs"

    def apply(self, model: onnx.ModelProto) -> None:
        constant = {tensor.name for tensor in model.graph.initializer}
        kept = [value for value in model.graph.input if value.name not in constant]
        if len(kept) < len(model.graph.input):
            del model.graph.input[:]
            model.graph.input.extend(kept)
        model.ir_version = max(model.ir_version, 4)

    def ensures(self, model: onnx.ModelProto) -> str:
        constant = {tensor.name for tensor in model.graph.initializer}
        remaining = constant & {value.name for value in model.graph.input}
        return f"still inputs: {sorted(remaining)[:3]}" if remaining else ""


# List every output once.
#
# ONNX Runtime runs a graph that lists an output twice, and gives the same value twice.  Callers
# have outputs by name, so that the second says nothing.  Cases: the same name any number of times.


@record
class ListOutputsOnce(Pass):
    """Keep the first of the outputs that have one name."""

    name = "list-outputs-once"

    def has_work(self, model: onnx.ModelProto) -> bool:
        """Whether an output is listed again."""
        return len({value.name for value in model.graph.output}) < len(model.graph.output)

    def apply(self, model: onnx.ModelProto) -> None:
        first = {value.name: value for value in reversed(model.graph.output)}
        kept = [first[name] for name in dict.fromkeys(value.name for value in model.graph.output)]
        del model.graph.output[:]
        model.graph.output.extend(kept)

    def ensures(self, model: onnx.ModelProto) -> str:
        return "outputs are still listed twice" if self.has_work(model) else ""


# Give dims of the graph their names in the artifact.
#
# Cases: an input's dim with neither name nor size, or with a name that says nothing, such as
# `None`,
# becomes `INPUT.INDEX`; such a name of any other value is removed; a dim that the model names gets
# its new name wherever it occurs (inputs, outputs, inner values, control-flow subgraphs); a dim
# that
# belongs to no input and has one of the new names by accident loses it.


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


# Give inputs and outputs of float32 a half-precision type; the model computes as before.
#
# Cases: an input (what reads it reads a cast of it); an output that a node makes, or that is
# constant
# (it is a cast of the value, which other nodes read as before); an output that is an input (both
# have
# one type).


_FLOAT: Final = 1
# Numbers are those of `TensorProto.DataType`, and the first operator set whose `Cast` has the type.
_TYPES: Final[Mapping[str, int]] = {"float16": 10, "bfloat16": 16}
_OPSETS: Final[Mapping[str, int]] = {"float16": 6, "bfloat16": 13}


@record
class InterfaceTypes(Pass):
    """`inputs` and `outputs`: the new type by name, `float16` or `bfloat16`."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    name = "interface-types"

    def requires(self, model: onnx.ModelProto) -> str:
        wrong = self.inputs.keys() - float_tensors(model.graph.input)
        wrong |= self.outputs.keys() - float_tensors(model.graph.output)
        return f"no input or output of float32: {sorted(wrong)[:3]}" if wrong else ""

    def apply(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        used = all_names(model)
        before: list[onnx.NodeProto] = []
        after: list[onnx.NodeProto] = []
        renamed: dict[str, str] = {}

        def inner_name(value: onnx.ValueInfoProto) -> str:
            renamed[value.name] = free_name(f"{value.name}_float32", used)
            graph.value_info.add().CopyFrom(value)
            graph.value_info[-1].name = renamed[value.name]
            return renamed[value.name]

        for value in graph.input:
            if value.name in self.inputs:
                before.append(cast_node(value.name, inner_name(value), _FLOAT, used))
                value.type.tensor_type.elem_type = _TYPES[self.inputs[value.name]]
        given = {value.name for value in graph.input}
        for value in graph.output:
            if value.name in self.outputs:
                kind = _TYPES[self.outputs[value.name]]
                if value.name not in given:
                    after.append(cast_node(inner_name(value), value.name, kind, used))
                value.type.tensor_type.elem_type = kind
        rename_read(graph.node, renamed)
        for node in graph.node:
            for at, name in enumerate(node.output):
                node.output[at] = renamed.get(name, name)
        for tensor in graph.initializer:
            tensor.name = renamed.get(tensor.name, tensor.name)
        set_nodes(graph, [*before, *graph.node, *after])

    def ensures(self, model: onnx.ModelProto) -> str:
        left = self.inputs.keys() & float_tensors(model.graph.input)
        left |= self.outputs.keys() & float_tensors(model.graph.output)
        return f"still float32: {sorted(left)[:3]}" if left else ""


def float_tensors(values: Iterable[onnx.ValueInfoProto]) -> set[str]:
    """The names of those `values` that are tensors of float32."""
    return {value.name for value in values if value.type.tensor_type.elem_type == _FLOAT}


def why_not_cast(model: onnx.ModelProto, dtype: str) -> str:
    """Why float32 cannot be cast to `dtype` in this model; empty if it can."""
    opsets = {one.domain or "ai.onnx": one.version for one in model.opset_import}
    found, first = opsets.get("ai.onnx", 0), _OPSETS[dtype]
    return f"operator set {found}; Cast to {dtype} exists from {first} on" if found < first else ""
