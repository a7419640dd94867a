"""Where the values of graph inputs flow: consumers, constants and shapes, subgraphs included.

A value is identified by scope and name: in a subgraph, the path of its node and attribute comes
first (`3.then_branch/x`); in the main graph, there is no prefix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.base.records import record
from aotc.graph.model import inlined
from aotc.graph.view import attribute_of, named_subgraphs
from aotc.spec.codec import Json

if TYPE_CHECKING:
    import onnx

# Larger constants are not shapes, axes or values to compare inputs with.
_MAX_CONSTANT_ELEMENTS: Final = 1024
# Limit for a graph without its weights, which shape inference copies several times.
_MAX_INFERRED_BYTES: Final = 256 << 20
# Number of nodes through which a declared shape is followed back.
_MAX_STEPS: Final = 16
# Operators whose output has the shape of their first input.
_SHAPE_KEPT: Final = frozenset(
    {
        *("Abs", "Cast", "CastLike", "Ceil", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu"),
        *("HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "LogSoftmax", "Mish", "Neg"),
        *("Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Softmax", "Softplus", "Sqrt"),
        "Tanh",
    }
)
Extent = Json
Shape = tuple[Extent | None, ...]
"""Sizes of a tensor's axes; None for an unknown size."""


@record(kw_only=False)
class Site:
    """A node with the values that it reads and produces; "" for an omitted optional one."""

    node: onnx.NodeProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Flow:
    """The data flow of a model's graph, with its local functions inlined."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = inlined(_without_weights(model))
        self._origin: dict[str, Extent] = {}
        self._shapes: dict[str, Shape] = {}
        self._constants: dict[str, Any] = {}
        self._inferred = False
        self._makers: dict[str, Site] = {}
        self.consumers: dict[str, list[tuple[Site, int]]] = {}
        self.readers: dict[tuple[str, int], list[str]] = {}
        """All values that operators of one type read at one input index."""
        self.links: dict[str, list[str]] = {}
        """Values that are passed unchanged into subgraphs and out of them."""
        weights = {tensor.name for tensor in model.graph.initializer}
        self.inputs = tuple(value for value in model.graph.input if value.name not in weights)
        for value in self.inputs:
            self._add_input(value)
        for tensor in model.graph.initializer:
            self._shapes[tensor.name] = tuple(tensor.dims)
        self._add_nodes(self._model.graph, "", {})

    def constant(self, value: str) -> Any:
        """The array of a small constant; None for anything else."""
        return self._constants.get(value)

    def shape(self, value: str) -> Shape | None:
        """The shape of a value, as declared or inferred; None if its rank is unknown."""
        if value and value not in self._shapes and not self._inferred:
            self._infer()
        known = self._shapes.get(value)
        if known is not None and None not in known:
            return known
        return self._derived_shape(value, known)

    def result_shape(self, value: str) -> Shape | None:
        """The shape of a node's output, also from shapes that are declared further down the graph.

        Shape inference does not know how a node's input determines its output shape; the exporter
        did.
        """
        shape = self.shape(value)
        for _ in range(_MAX_STEPS):
            if shape is not None and None not in shape:
                return shape
            followers = [
                site.outputs[0]
                for site, index in self.consumers.get(value, ())
                if index == 0 and site.node.op_type in _SHAPE_KEPT
            ]
            if not followers:
                return shape
            value = followers[0]
            later = self.shape(value)
            if later is not None and (shape is None or len(shape) == len(later)):
                shape = later if shape is None or later.count(None) < shape.count(None) else shape
        return shape

    def _derived_shape(self, value: str, known: Shape | None) -> Shape | None:
        """What shape inference misses: sums of free sizes, and shapes of other values."""
        maker = self._makers.get(value)
        kind = maker.node.op_type if maker is not None else ""
        if maker is not None and kind == "Concat" and known:
            axis = attribute_of(maker.node, "axis", 0) % len(known)
            parts = [size_at(self._shapes.get(given), axis) for given in maker.inputs]
            # Sums of sums would grow without end.
            if not any(isinstance(part, dict) for part in parts):
                return (*known[:axis], total(*parts), *known[axis + 1 :])
        if maker is not None and kind in ("Reshape", "Expand") and len(maker.inputs) > 1:
            source = self._makers.get(maker.inputs[1])
            if source is not None and source.node.op_type == "Shape" and not source.node.attribute:
                return self._shapes.get(source.inputs[0], known)
        return known

    def _add_input(self, value: onnx.ValueInfoProto) -> None:
        kind = value.type.WhichOneof("value")
        proto = value.type.tensor_type
        if kind == "optional_type":
            proto = value.type.optional_type.elem_type.tensor_type
        if kind not in ("tensor_type", "optional_type"):
            return
        if not proto.HasField("shape"):
            self._shapes[value.name] = ([value.name, 0],)
            return
        shape: list[Extent] = []
        for axis, dim in enumerate(proto.shape.dim):
            fixed = dim.HasField("dim_value") and dim.dim_value >= 0
            shape.append(dim.dim_value if fixed else [value.name, axis])
            if dim.dim_param:
                self._origin.setdefault(dim.dim_param, [value.name, axis])
        self._shapes[value.name] = tuple(shape)

    def _add_nodes(
        self, graph: onnx.GraphProto, scope: str, outer: dict[str, str]
    ) -> dict[str, str]:
        """Add all nodes of `graph`; returns the values that are visible in it, by name."""
        from onnx import numpy_helper

        names = dict(outer)
        names.update((value.name, scope + value.name) for value in graph.input)
        for tensor in graph.initializer:
            names[tensor.name] = scope + tensor.name
            if _is_small(tensor):
                self._constants[scope + tensor.name] = numpy_helper.to_array(tensor)
        for index, node in enumerate(graph.node):
            names.update((name, scope + name) for name in node.output if name)
            site = Site(
                node,
                tuple(names.get(name, "") for name in node.input),
                tuple(scope + name if name else "" for name in node.output),
            )
            self._makers.update((value, site) for value in site.outputs if value)
            for input_index, value in enumerate(site.inputs):
                if value:
                    self.consumers.setdefault(value, []).append((site, input_index))
                    self.readers.setdefault((node.op_type, input_index), []).append(value)
            if node.op_type == "Constant":
                self._add_constant(node, site.outputs[0])
            for attribute, subgraph in named_subgraphs(node):
                inner = f"{scope}{index}.{attribute}/"
                known = self._add_nodes(subgraph, inner, names)
                self._link_subgraph(site, subgraph, inner, known)
        return names

    def _link_subgraph(
        self, site: Site, subgraph: onnx.GraphProto, inner: str, known: dict[str, str]
    ) -> None:
        kind = site.node.op_type
        pairs: list[tuple[str, str]] = []
        if kind in ("Loop", "Scan", "SequenceMap"):
            # The first input of Scan-8 holds the lengths of its sequences.
            given = site.inputs[max(0, len(site.inputs) - len(subgraph.input)) :]
            pairs += zip(given, (inner + value.name for value in subgraph.input), strict=False)
        elif kind == "If":
            results = (known.get(value.name, "") for value in subgraph.output)
            pairs += zip(results, site.outputs, strict=False)
        for source, target in pairs:
            if source and target:
                self.links.setdefault(source, []).append(target)

    def _add_constant(self, node: onnx.NodeProto, value: str) -> None:
        from onnx import helper, numpy_helper

        for attribute in node.attribute:
            if attribute.name == "value":
                self._shapes[value] = tuple(attribute.t.dims)
                if _is_small(attribute.t):
                    self._constants[value] = numpy_helper.to_array(attribute.t)
            elif attribute.name.startswith("value_") and "string" not in attribute.name:
                array = np.asarray(helper.get_attribute_value(attribute))
                self._shapes[value] = array.shape
                self._constants[value] = array

    def _infer(self) -> None:
        import onnx

        self._inferred = True
        model = self._model
        if model.ByteSize() < _MAX_INFERRED_BYTES:
            with suppress(onnx.shape_inference.InferenceError, ValueError, RuntimeError):
                model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        self._add_shapes(model.graph, "")

    def _add_shapes(self, graph: onnx.GraphProto, scope: str) -> None:
        for value in (*graph.output, *graph.value_info, *(graph.input if scope else ())):
            proto = value.type.tensor_type
            if value.type.HasField("tensor_type") and proto.HasField("shape"):
                shape = tuple(
                    dim.dim_value if dim.HasField("dim_value") else self._origin.get(dim.dim_param)
                    for dim in proto.shape.dim
                )
                self._shapes.setdefault(scope + value.name, shape)
        for index, node in enumerate(graph.node):
            for attribute, subgraph in named_subgraphs(node):
                self._add_shapes(subgraph, f"{scope}{index}.{attribute}/")


def _is_small(tensor: onnx.TensorProto) -> bool:
    return math.prod(tensor.dims) <= _MAX_CONSTANT_ELEMENTS and tensor.data_location == 0


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its large initializers as inputs: their values are not read here."""
    import onnx

    light = onnx.ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    graph = model.graph
    light.graph.name = graph.name
    light.graph.node.extend(graph.node)
    light.graph.output.extend(graph.output)
    light.graph.value_info.extend(graph.value_info)
    light.graph.input.extend(graph.input)
    given = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if _is_small(tensor):
            light.graph.initializer.append(tensor)
        elif tensor.name not in given:
            light.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return light


@record(kw_only=False)
class Use:
    """One node as a consumer: the input at `index` is the one that rules are asked about."""

    flow: Flow
    site: Site
    index: int

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute."""
        return attribute_of(self.site.node, name, default)

    def has_input(self, index: int) -> bool:
        """Whether input `index` is present."""
        return index < len(self.site.inputs) and bool(self.site.node.input[index])

    def shape(self, index: int) -> Shape | None:
        """The shape of input `index`; None if unknown or absent."""
        return self.flow.shape(self.site.inputs[index]) if self.has_input(index) else None

    def output_shape(self, index: int = 0) -> Shape | None:
        """The shape of output `index`, as declared or inferred; None if unknown."""
        outputs = self.site.outputs
        return self.flow.result_shape(outputs[index]) if index < len(outputs) else None

    def size(self, index: int, axis: int) -> Extent | None:
        """The size of one axis of input `index`; None if unknown or absent."""
        return size_at(self.shape(index), axis)

    def rank(self, index: int) -> int | None:
        """The rank of input `index`; None if unknown or absent."""
        shape = self.shape(index)
        return None if shape is None else len(shape)

    def constant(self, index: int) -> list[Any] | None:
        """The elements of input `index`, if it is a small constant."""
        array = self.flow.constant(self.site.inputs[index]) if self.has_input(index) else None
        return None if array is None else np.ravel(array).tolist()

    def length(self, index: int | None = None) -> int | None:
        """The number of elements of input `index`; None if not fixed.

        Without `index`, of the input that rules are asked about.
        """
        shape = self.shape(self.index if index is None else index)
        if shape is None or not all(isinstance(size, int) for size in shape):
            return None
        return math.prod(size for size in shape if isinstance(size, int))


def size_at(shape: Sequence[Extent | None] | None, axis: int) -> Extent | None:
    """The size of `axis` (negative: from the end); None if unknown or absent."""
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    return shape[axis]


# Numbers that depend on the sizes of a model's inputs, as JSON inside a hint.
#
# An extent is an integer; `[INPUT, AXIS]`, the size of one axis of a graph input; or one of
# `{"sum": […]}`, `{"product": […]}` and `{"minimum": […]}` of extents.


def total(*parts: Extent | None) -> Extent | None:
    """The sum of `parts`; None if one of them is unknown."""
    return _combined("sum", parts)


def product(*parts: Extent | None) -> Extent | None:
    """The product of `parts`; None if one of them is unknown."""
    return _combined("product", parts)


def minimum(*parts: Extent | None) -> Extent | None:
    """The smallest of the known `parts`; None if all are unknown."""
    known = [part for part in parts if part is not None]
    if len(known) == 1:
        return known[0]
    return _combined("minimum", known) if known else None


def difference(one: Extent | None, other: Extent | None) -> Extent | None:
    """`one` minus `other`; None if either is unknown."""
    return total(one, product(-1, other))


def _combined(kind: str, parts: Sequence[Extent | None]) -> Extent | None:
    if any(part is None for part in parts):
        return None
    if all(isinstance(part, int) for part in parts):
        return _evaluated(kind, [int(part) for part in parts if isinstance(part, int)])
    return {kind: list(parts)}


def _evaluated(kind: str, parts: Sequence[int]) -> int:
    if kind == "sum":
        return sum(parts)
    return math.prod(parts) if kind == "product" else min(parts)


def extent_value(extent: Extent, shapes: Mapping[str, Sequence[int]]) -> int | None:
    """The value of `extent` at these `shapes` of the graph inputs; None if they lack an axis."""
    if isinstance(extent, int):
        return extent
    if isinstance(extent, list):
        name, axis = extent
        shape = shapes.get(name, ())
        return shape[axis] if axis < len(shape) else None
    (kind, parts), *_ = extent.items()
    values = [extent_value(part, shapes) for part in parts]
    known = [value for value in values if value is not None]
    return _evaluated(kind, known) if len(known) == len(values) else None
