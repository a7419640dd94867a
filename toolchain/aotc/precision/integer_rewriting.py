"""What rewriting to integers needs: constants as integers, new names, the order of nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from aotc.base.records import record
from aotc.graph.passes.base import all_names, set_nodes
from aotc.graph.view import NodeLinks, declared_values, every_graph, made_values, subgraphs

if TYPE_CHECKING:
    import onnx


Integers = Literal["int8", "uint8"]
Array = np.ndarray[Any, Any]

# Numbers of onnx.TensorProto.
TENSOR_TYPES: Final = {"int8": 3, "uint8": 2}


@record(kw_only=False)
class Scheme:
    """How a model is quantized: types, a scale for each channel or one, weights in 7 bits or 8."""

    activations: Integers
    weights: Integers
    per_channel: bool
    reduce_range: bool


@record(kw_only=False)
class Quantized:
    """`values` have the shape of the constant; real value = (values - zero) * scale.

    `scale` (float32) and `zero` are scalars, or have one element for each channel.
    """

    values: Array
    scale: Array
    zero: Array


def quantized(values: Array, scheme: Scheme, axis: int | None) -> Quantized:
    """The float32 `values` with a scale for each index along `axis` (None: one for all).

    int8 is symmetric with zero point 0; uint8 spans the smallest to the largest value.
    """
    from onnxruntime.quantization.quant_utils import compute_data_quant_params, quantize_nparray

    kind = TENSOR_TYPES[scheme.weights]
    symmetric = scheme.weights == "int8"

    def of_slice(part: Array) -> tuple[Array, Array, Array]:
        zero, scale = compute_data_quant_params(part, kind, symmetric, scheme.reduce_range)
        return quantize_nparray(kind, part, scale, zero), scale, zero

    if axis is None:
        made, scale, zero = of_slice(values.ravel())
        return Quantized(made.reshape(values.shape), _scalar(scale), _scalar(zero))
    moved = np.moveaxis(values, axis, 0)
    parts = [of_slice(part.ravel()) for part in moved]
    made = np.stack([part[0] for part in parts]).reshape(moved.shape)
    return Quantized(
        np.ascontiguousarray(np.moveaxis(made, 0, axis)),
        np.array([_scalar(part[1]) for part in parts], np.float32),
        np.array([_scalar(part[2]) for part in parts], parts[0][0].dtype),
    )


def _scalar(value: Array) -> Array:
    return np.asarray(value).reshape(())


def add_constant(graph: onnx.GraphProto, name: str, values: Array) -> str:
    """Add an initializer to `graph`, unless it has one of that name; the name."""
    import onnx

    if all(tensor.name != name for tensor in graph.initializer):
        graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return name


@record(kw_only=False)
class Scope:
    """A graph, and those around it, innermost first; `inner` is false for the main graph."""

    graph: onnx.GraphProto
    around: tuple[onnx.GraphProto, ...] = ()

    @property
    def inner(self) -> bool:
        """Whether it is the body of a control-flow node."""
        return bool(self.around)

    def constant(self, name: str) -> tuple[onnx.TensorProto, onnx.GraphProto] | None:
        """The initializer `name` that a node sees, and the graph that holds it; None if it is none.

        An initializer that is a graph input too has another value if a caller gives one.
        """
        for graph in (self.graph, *self.around):
            if any(value.name == name for value in graph.input):
                return None
            for tensor in graph.initializer:
                if tensor.name == name:
                    return tensor, graph
            sparse = (tensor.values.name for tensor in graph.sparse_initializer)
            if name in sparse or any(name in node.output for node in graph.node):
                return None
        return None


def scopes_of(graph: onnx.GraphProto, around: tuple[onnx.GraphProto, ...] = ()) -> Iterator[Scope]:
    """`graph`, then all bodies in it, outer ones before inner ones."""
    yield Scope(graph, around)
    for node in graph.node:
        for body in subgraphs(node):
            yield from scopes_of(body, (graph, *around))


def replace_nodes(graph: onnx.GraphProto, made: dict[str, list[onnx.NodeProto]]) -> None:
    """Put other nodes in the place of those named in `made`."""
    if not made:
        return
    set_nodes(graph, [new for node in graph.node for new in made.get(node.name, [node])])


def require_domain(model: onnx.ModelProto, domain: str) -> None:
    """Import `domain` at version 1, unless the model does."""
    import onnx

    if all(item.domain != domain for item in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid(domain, 1))


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Sort the nodes of a main graph; those that are in order stay in the order they have."""
    nodes = list(graph.node)
    before = NodeLinks(nodes).before
    order: list[int] = []
    placed: set[int] = set()
    for first in range(len(nodes)):
        pending = [first]
        while pending:
            at = pending[-1]
            missing = [] if at in placed else [n for n in before[at][::-1] if n not in placed]
            if missing:
                pending += missing
                continue
            pending.pop()
            if at not in placed:
                placed.add(at)
                order.append(at)
    set_nodes(graph, [nodes[at] for at in order])


class Placeholders:
    """Names that stand for a model's own while nodes are made: no made name is one of the model's.

    They are `<3>` for each name of a graph, and differ between graphs.  The quantizers of ONNX
    Runtime name what they make after what it is made for (`w` gives `w_scale`), and take what has
    such a name for their own.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._taken = all_names(model)
        mark = "<"
        while any(mark in name for name in self._taken):
            mark += "<"
        self._mark = mark
        self._pattern = re.compile(re.escape(mark) + r"(\d+)>")
        self._originals: list[str] = []
        self._nodes: dict[str, str] = {}
        self._final: dict[str, str] = {}
        self._values = self._replace_names(model.graph, {})
        self._left = all_names(model)

    def nodes(self, names: Collection[str]) -> frozenset[str]:
        """What stands for nodes of these names."""
        return frozenset(self._nodes[name] for name in names if name in self._nodes)

    def value(self, name: str) -> str:
        """What stands for a value of the main graph."""
        return self._values.get(name, name)

    def restore(self, model: onnx.ModelProto) -> None:
        """Give `model` its names again, and made names a number where they are in use."""
        for graph in every_graph(model):
            _rename(graph, self._restored, self._restored)

    def _fresh(self, name: str) -> str:
        self._originals.append(name)
        return f"{self._mark}{len(self._originals) - 1}>"

    def _replace_names(
        self, graph: onnx.GraphProto, around: Mapping[str, str]
    ) -> Mapping[str, str]:
        own: dict[str, str] = {}
        defined = [value.name for value in graph.input]
        defined += [tensor.name for tensor in graph.initializer]
        defined += made_values(graph)
        for name in defined:
            if name and name not in own:
                own[name] = self._fresh(name)
        seen = {**around, **own}
        for node in graph.node:
            if node.name and node.name not in self._nodes:
                self._nodes[node.name] = self._fresh(node.name)
            for body in subgraphs(node):
                self._replace_names(body, seen)
        _rename(graph, lambda name: seen.get(name, name), lambda name: self._nodes.get(name, name))
        return own

    def _restored(self, name: str) -> str:
        if exact := self._pattern.fullmatch(name):
            return self._originals[int(exact[1])]
        if not name or name in self._left:
            return name
        if name not in self._final:
            wanted = self._pattern.sub(lambda found: self._originals[int(found[1])], name)
            free, number = wanted, 0
            while free in self._taken:
                number += 1
                free = f"{wanted}_{number}"
            self._taken.add(free)
            self._final[name] = free
        return self._final[name]


@contextmanager
def placeholder_names(model: onnx.ModelProto) -> Iterator[Placeholders]:
    """Within, placeholders are the names of nodes and values of `model`, in its bodies too.

    Afterwards it has its names again, and what was made has names that nothing else has.
    """
    names = Placeholders(model)
    yield names
    names.restore(model)


def _rename(
    graph: onnx.GraphProto, value_name: Callable[[str], str], node_name: Callable[[str], str]
) -> None:
    """Rename in one graph, without its bodies."""
    for value in declared_values(graph):
        value.name = value_name(value.name)
    for tensor in graph.initializer:
        tensor.name = value_name(tensor.name)
    for node in graph.node:
        node.name = node_name(node.name)
        for names in (node.input, node.output):
            names[:] = [value_name(name) for name in names]
