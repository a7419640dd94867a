"""Passes of the import: what is removed, and what gets its name and type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from aotc.base.records import field, record
from aotc.graph.model import draws, inlined
from aotc.graph.passes.base import Pass, all_names, cast_node, free_name, rename_read, set_nodes
from aotc.graph.types import inferred
from aotc.graph.view import (
    declared_values,
    every_graph,
    every_node,
    inner_graphs,
)
from aotc.spec.relations import is_anonymous
from aotc.spec.versions import DRAWS_ANEW, DRAWS_KEY

if TYPE_CHECKING:
    import onnx

    Dims = list[int | str]


# Remove what exporters leave behind and no runtime reads.
#
# `doc_string` and `metadata_props` contain source paths and stack traces of the exporting machine.
# Cases: model, graph, node, value, initializer, function; all control-flow subgraphs.
# `training_info` says how the model was trained, with tensors and graphs of its own: inference does
# not read it, and its external data would not be part of the artifact.  What says that each run
# draws random numbers anew is ours, and stays.


@record
class StripMetadata(Pass):
    """Clear documentation and metadata everywhere, and what only training reads."""

    name = "strip-metadata"

    def apply(self, model: onnx.ModelProto) -> None:
        draws = [each.value for each in model.metadata_props if each.key == DRAWS_KEY]
        _clear(model)
        for stated in draws:
            model.metadata_props.add(key=DRAWS_KEY, value=stated)
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
        others = any(each.key != DRAWS_KEY for each in model.metadata_props)
        return f"metadata on {left[:3]}" if left or others else ""


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


# Random numbers: their seeds, or inputs in their place.


_INT32: Final = 6
_INT64: Final = 7
# The ratio of a Dropout that states none.
_DROPPED: Final = 0.5
# By the input whose shape the numbers have.
_LIKE: Final = ("RandomNormalLike", "RandomUniformLike", "Bernoulli", "Dropout")
_DIRECT: Final = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
# What an operator of the rewritten form needs: sums along an axis that is an input.
_MULTINOMIAL_OPSET: Final = 13
_RUNS_ONCE: Final = "If"


# Inline the functions of a model that draws random numbers in one of them.
#
# A function that is called twice draws twice: each node needs its own seed or input.  Functions of
# another operator set stay, as do those that ONNX does not inline: they are refused later.


@record
class InlineFunctions(Pass):
    """Put the bodies of all functions in the place of their calls."""

    name = "inline-functions"

    def apply(self, model: onnx.ModelProto) -> None:
        model.CopyFrom(inlined(model))


# Let each call draw anew from the seeds of the graph's nodes.
#
# The key of the metadata is what sessions of the graph are opened by.


@record
class SeedDraws(Pass):
    """`seeds`: the new seed of a node, by its name; the others have their own."""

    seeds: Mapping[str, int] = field(default_factory=dict)
    name = "random-seeds"

    def apply(self, model: onnx.ModelProto) -> None:
        import onnx

        for draw in draws(model):
            if (seed := self.seeds.get(draw.node.name)) is None:
                continue
            kept = [each for each in draw.node.attribute if each.name != "seed"]
            value = seed if draw.node.op_type == "Dropout" else float(seed)
            del draw.node.attribute[:]
            draw.node.attribute.extend([*kept, onnx.helper.make_attribute("seed", value)])
        model.metadata_props.add(key=DRAWS_KEY, value=DRAWS_ANEW)

    def ensures(self, model: onnx.ModelProto) -> str:
        left = [each.node.name for each in draws(model) if each.node.name in self.seeds]
        unseeded = [each.node.name for each in draws(model) if each.seed is None]
        wrong = sorted(set(left) & set(unseeded))
        return f"no seed: {', '.join(wrong[:3])}" if wrong else ""


# Let callers pass the random numbers.
#
# Cases: `Random…` nodes, whose numbers the input has; Bernoulli, Dropout and Multinomial, which are
# computed from uniform numbers as ONNX Runtime does: numbers of the same generator give its bytes
# (of Multinomial, ONNX Runtime computes in float64).  In the main graph and in branches of an If.


@record
class DrawsAsInputs(Pass):
    """`inputs`: the new input in place of a node's random numbers, by the node's name."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    name = "random-as-input"

    def apply(self, model: onnx.ModelProto) -> None:
        import onnx

        shapes = NumberShapes(model)
        used = all_names(model)
        for draw in draws(model):
            if draw.node.name not in self.inputs:
                continue
            dims = shapes.of(draw.node)
            kind = shapes.element_type(draw.node)
            if isinstance(dims, str) or not kind:
                raise RuntimeError(f"{draw.node.name}: {dims}")
            name = self.inputs[draw.node.name]
            model.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, dims))
        for graph in every_graph(model):
            nodes: list[onnx.NodeProto] = []
            for node in graph.node:
                given = self.inputs.get(node.name)
                nodes += [node] if given is None else _rewritten(node, given, shapes, used)
            if len(nodes) != len(graph.node) or any(n.name in self.inputs for n in graph.node):
                set_nodes(graph, nodes)

    def ensures(self, model: onnx.ModelProto) -> str:
        left = [each.node.name for each in draws(model) if each.node.name in self.inputs]
        return f"still draw: {', '.join(left[:3])}" if left else ""


def repeats(holders: Sequence[str]) -> str:
    """The first operator of control flow around a node that may run it several times."""
    return next((op_type for op_type in holders if op_type != _RUNS_ONCE), "")


class NumberShapes:
    """Shapes and types of what the nodes of a model draw; dims of inputs get names for that."""

    def __init__(self, model: onnx.ModelProto) -> None:
        _name_dims(model)
        self._known = {
            dim.dim_param
            for value in model.graph.input
            for dim in value.type.tensor_type.shape.dim
            if dim.dim_param
        }
        self._types = {
            value.name: value.type
            for graph in reversed(list(every_graph(inferred(model))))
            for value in (*graph.output, *graph.value_info, *graph.input)
        }
        self._constants = {
            tensor.name: tensor for graph in every_graph(model) for tensor in graph.initializer
        }
        self._opset = max(
            (each.version for each in model.opset_import if each.domain in ("", "ai.onnx")),
            default=0,
        )

    def element_type(self, node: onnx.NodeProto) -> int:
        """The ONNX type of the numbers; 0 if it is not known."""
        if node.op_type not in _DIRECT:
            # Of what Dropout drops, the rewritten form casts to the type.
            return _FLOAT if node.op_type != "Dropout" or self.type_of(node.input[0]) else 0
        stated = _attribute(node, "dtype").i
        return stated or (self.type_of(node.input[0]) if node.input else _FLOAT)

    def type_of(self, name: str) -> int:
        """The ONNX type of a value's elements; 0 if it is not known."""
        if name in self._constants:
            return self._constants[name].data_type
        return self._types[name].tensor_type.elem_type if name in self._types else 0

    def of(self, node: onnx.NodeProto) -> Dims | str:
        """Sizes and dims of the inputs, in order; or why these do not tell the shape."""
        if node.op_type in (*_LIKE, "Multinomial") and not node.input:
            return "it has no input"
        if node.op_type == "Multinomial":
            if self._opset < _MULTINOMIAL_OPSET:
                return f"opset {self._opset}; that takes {_MULTINOMIAL_OPSET}"
            first = self._dims_of(node.input[0])
            if isinstance(first, str):
                return first
            return [*first[:1], _attribute(node, "sample_size").i or 1]
        if node.op_type in _LIKE:
            return self._dims_of(node.input[0])
        sizes = _attribute(node, "shape").ints
        return list(sizes) if min(sizes, default=0) >= 0 else "a size is negative"

    def _dims_of(self, name: str) -> Dims | str:
        if name in self._constants:
            return list(self._constants[name].dims)
        proto = self._types.get(name)
        if proto is None or not proto.tensor_type.HasField("shape"):
            return f"the number of dims of {name} is not known"
        dims: Dims = []
        for at, dim in enumerate(proto.tensor_type.shape.dim):
            if dim.HasField("dim_value"):
                dims.append(dim.dim_value)
            elif dim.dim_param in self._known:
                dims.append(dim.dim_param)
            else:
                return f"dim {at} of {name} is none of the inputs' dims"
        return dims


def _attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto:
    """The attribute of that name; an empty one if there is none."""
    import onnx

    found = (each for each in node.attribute if each.name == name)
    return next(found, onnx.AttributeProto())


def _name_dims(model: onnx.ModelProto) -> None:
    """Name anonymous dims of inputs `INPUT.INDEX`, so that inference follows them."""
    initial = {tensor.name for tensor in model.graph.initializer}
    taken = {
        dim.dim_param
        for value in model.graph.input
        for dim in value.type.tensor_type.shape.dim
        if not is_anonymous(dim.dim_param)
    }
    for value in model.graph.input:
        if value.name in initial or not value.type.HasField("tensor_type"):
            continue
        for index, dim in enumerate(value.type.tensor_type.shape.dim):
            if _is_nameless(dim):
                dim.dim_param = free_name(f"{value.name}.{index}", taken)


class _Parts:
    """The nodes that stand for one, under its name."""

    def __init__(self, node: onnx.NodeProto, used: set[str]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._name, self._used = node.name, used

    def add(self, op_type: str, *inputs: str, into: str = "", **attributes: Any) -> str:
        """A node, which makes the value `into`, or one of its own; returns that."""
        import onnx

        name = free_name(f"{self._name}/{op_type}", self._used)
        made = into or free_name(f"{name}_value", self._used)
        self.nodes.append(onnx.helper.make_node(op_type, inputs, [made], name=name, **attributes))
        return made

    def cast(self, value: str, kind: int, into: str = "") -> str:
        """`value` in the ONNX type `kind`."""
        return self.add("Cast", value, into=into, to=kind)

    def constant(self, kind: int, *numbers: float, scalar: bool = False) -> str:
        """A vector of `numbers`, or of the only one a scalar."""
        import onnx

        dims = [] if scalar else [len(numbers)]
        return self.add("Constant", value=onnx.helper.make_tensor("", kind, dims, numbers))


def _rewritten(
    node: onnx.NodeProto, given: str, shapes: NumberShapes, used: set[str]
) -> Sequence[onnx.NodeProto]:
    """What computes the outputs of a node from the random numbers `given`."""
    parts = _Parts(node, used)
    if node.op_type in _DIRECT:
        parts.add("Identity", given, into=node.output[0])
    elif node.op_type == "Bernoulli":
        # So compares the function in ONNX's specification, and ONNX Runtime: 1 where it is greater.
        chance = parts.cast(node.input[0], _FLOAT)
        kind = _attribute(node, "dtype").i or shapes.type_of(node.input[0]) or _FLOAT
        parts.cast(parts.add("Greater", given, chance), kind, node.output[0])
    elif node.op_type == "Multinomial":
        _sample(node, given, parts)
    else:
        _drop(node, given, parts, shapes.type_of(node.input[0]))
    return parts.nodes


def _sample(node: onnx.NodeProto, given: str, parts: _Parts) -> None:
    """Of how many classes but the last the running sum is at most the random number."""
    chances = parts.add("Softmax", parts.cast(node.input[0], _FLOAT), axis=1)
    sums = parts.add("CumSum", chances, parts.constant(_INT64, 1, scalar=True))
    one, two = parts.constant(_INT64, 1), parts.constant(_INT64, 2)
    start, end = parts.constant(_INT64, 0), parts.constant(_INT64, -1)
    sums = parts.add("Unsqueeze", parts.add("Slice", sums, start, end, one), one)
    reached = parts.add("Not", parts.add("Greater", sums, parts.add("Unsqueeze", given, two)))
    count = parts.add("ReduceSum", parts.cast(reached, _INT32), two, keepdims=0)
    parts.cast(count, _attribute(node, "dtype").i or _INT32, node.output[0])


def _drop(node: onnx.NodeProto, given: str, parts: _Parts, kind: int) -> None:
    """`data * mask / (1 - ratio)` where the node trains, else the data, which is of `kind`."""
    data, stated, train = node.input[:3]
    ratio = parts.cast(stated, _FLOAT) if stated else parts.constant(_FLOAT, _DROPPED, scalar=True)
    keeps = parts.add("Not", parts.add("Less", given, ratio))
    rest = parts.add("Sub", parts.constant(_FLOAT, 1.0, scalar=True), ratio)
    kept = parts.add("Mul", data, parts.cast(keeps, kind))
    dropped = parts.add("Div", kept, parts.cast(rest, kind))
    if node.output[0]:
        parts.add("Where", train, dropped, data, into=node.output[0])
    if len(node.output) > 1 and node.output[1]:
        parts.add("Or", keeps, parts.add("Not", train), into=node.output[1])
