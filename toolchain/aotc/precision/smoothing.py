"""Smooth activations before they are quantized: a large channel of theirs takes all 8 bits.

G. Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language
Models" (2022): each channel of what products read is divided by a factor, and the weights that
multiply it are multiplied by as much.  Factors are powers of two, so that float32 answers the same
to the bit.  They are taken into the constants that make the value; where that cannot be, because
others read it too, one product with a constant is added, if that gains enough.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.base.records import field, record
from aotc.graph.passes.base import Pass, all_names, drop_unread, free_name, set_nodes
from aotc.graph.view import NodeLinks, attribute_of, declared_values
from aotc.precision.quantize import Scheme, Scope
from aotc.spec.variant import SMOOTH

if TYPE_CHECKING:
    import onnx


Array = np.ndarray[Any, Any]
# How much of the difference between channels goes to the weights: half, as in the paper.
_MIGRATED: Final = 0.5
# The part of the expected squared error that may be left where a value is smoothed, and where a
# node is added for it.
_LEFT: Final = 0.5
_LEFT_BY_NODE: Final = 0.1
# Where the largest channel is not so many times as large as the usual one, nothing is tried.
_UNEVEN: Final = 4.0
_MOST_EXPONENT: Final = 24
_MATRIX: Final = 2
_FLOAT32: Final = 1
# Operators of which channels can be scaled by their second and third operand, or only the second.
_NORMALIZATIONS: Final[Mapping[str, tuple[int, ...]]] = {
    "LayerNormalization": (1, 2),
    "RMSNormalization": (1,),
    "SimplifiedLayerNormalization": (1,),
    "SkipLayerNormalization": (2, 3),
    "SkipSimplifiedLayerNormalization": (2,),
}
# f(x * s) = f(x) * s for positive s.
_HOMOGENEOUS: Final = frozenset({"Identity", "LeakyRelu", "Relu"})


@record(kw_only=False)
class Channels:
    """Of the channels of a value (its last axis): the smallest, the largest, and the mean square.

    All have the shape [channels].
    """

    low: Array
    high: Array
    squares: Array

    def scaled(self, factors: Array) -> Channels:
        """These, each divided by its factor."""
        return Channels(self.low / factors, self.high / factors, self.squares / factors**2)

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        return float(self.low.min()), float(self.high.max())


@record(kw_only=False)
class _Group:
    """A value, the products that read it, and the constants to divide: (node, operand, axis).

    `folds` is None where others read it too, or nothing before it can be divided.  `between` are
    the values that are divided on the way.
    """

    value: str
    products: tuple[onnx.NodeProto, ...]
    folds: tuple[tuple[onnx.NodeProto, int, int], ...] | None
    between: tuple[str, ...]


def smoothable(model: onnx.ModelProto) -> tuple[str, ...]:
    """The values of the main graph whose channels `Smooth` needs to know, in order."""
    search = _Groups(model)
    found: dict[str, None] = {}
    for group in search.groups({node.name for node in model.graph.node}):
        found.update(dict.fromkeys((group.value, *group.between)))
    return tuple(found)


@record
class Smooth(Pass):
    """Smooth what the `chosen` products read where that makes them more exact.

    `channels` are those observed, by value.  Weights are in memory.
    """

    name = SMOOTH

    chosen: Collection[str]
    scheme: Scheme
    channels: Mapping[str, Channels]
    # What was done: ranges of changed values, by name, how many products, and how many were added.
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    matched: dict[str, int] = field(default_factory=dict)

    def options(self) -> dict[str, object]:
        """How much goes to the weights."""
        return {"migrated": _MIGRATED}

    def gains(self, model: onnx.ModelProto) -> bool:
        """Whether there is anything to smooth."""
        writer = _Writer(model)
        return any(self._factors(group, writer) is not None for group in self._groups(model))

    def apply(self, model: onnx.ModelProto) -> None:
        counts = {"products": 0, "values": 0, "added": 0}
        writer = _Writer(model)
        for group in self._groups(model):
            if (factors := self._factors(group, writer)) is None:
                continue
            counts["products"] += len(group.products)
            counts["values"] += 1
            writer.multiply_weights(group, factors)
            if group.folds is None:
                counts["added"] += 1
                made = writer.divide_by_node(group, factors)
                self.ranges[made] = self.channels[group.value].scaled(factors).bounds
                continue
            writer.divide_constants(group.folds, factors)
            for name in (group.value, *group.between):
                self.ranges[name] = self.channels[name].scaled(factors).bounds
        writer.end()
        self.matched.update(counts)

    def _groups(self, model: onnx.ModelProto) -> list[_Group]:
        return [
            group
            for group in _Groups(model).groups(self.chosen)
            if all(name in self.channels for name in (group.value, *group.between))
        ]

    def _factors(self, group: _Group, writer: _Writer) -> Array | None:
        """The factors of a group; None where they gain too little."""
        seen = self.channels[group.value]
        largest = np.maximum(np.abs(seen.low), np.abs(seen.high))
        if largest.max() <= _UNEVEN * np.median(largest):
            return None
        factors, left = smoothing_factors(seen, writer.weights(group), self.scheme)
        return factors if left <= (_LEFT_BY_NODE if group.folds is None else _LEFT) else None


def smoothing_factors(
    seen: Channels, weights: Sequence[Array], scheme: Scheme
) -> tuple[Array, float]:
    """By what channels are divided, float32 powers of two, and the part of the error that is left.

    `weights` have the shape [channels, outputs].
    """
    inputs = np.maximum(np.abs(seen.low), np.abs(seen.high)).astype(np.float64)
    rows = np.max([np.abs(each).max(axis=1) for each in weights], axis=0).astype(np.float64)
    # What is always zero needs no factor.
    usual = (inputs > 0) & (rows > 0)
    exponents = np.zeros(inputs.size)
    exponents[usual] = _MIGRATED * np.log2(inputs[usual])
    exponents[usual] -= (1 - _MIGRATED) * np.log2(rows[usual])
    if usual.any():
        exponents[usual] -= np.median(exponents[usual])
    exponents = np.clip(np.rint(exponents), -_MOST_EXPONENT, _MOST_EXPONENT)
    factors = np.exp2(exponents).astype(np.float32)
    before = _expected_error(seen, weights, np.ones_like(factors), scheme)
    after = _expected_error(seen, weights, factors, scheme)
    return factors, after / before if before > 0 else 1.0


def _expected_error(
    seen: Channels, weights: Sequence[Array], factors: Array, scheme: Scheme
) -> float:
    """The squared error that products are expected to have, times 12: steps are uniform noise.

    What is below half a step is lost, which costs no more than itself.
    """
    divided = seen.scaled(factors.astype(np.float64))
    low, high = divided.bounds
    step = (max(high, 0.0) - min(low, 0.0)) / 255
    noise = np.minimum(step**2, 12 * divided.squares)
    levels = 63 if scheme.reduce_range else 127
    total = 0.0
    for each in weights:
        scaled = each * factors[:, None].astype(np.float64)
        total += float((noise * np.square(scaled).sum(axis=1)).sum())
        largest = np.abs(scaled).max(axis=0)
        if not scheme.per_channel:
            largest = np.full_like(largest, largest.max(initial=0.0))
        total += float(np.square(largest / levels).sum() * divided.squares.sum())
    return total


class _Groups:
    """Searches for values that products with constant weights read, in the main graph."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._scope = Scope(graph)
        self._links = NodeLinks(graph.node)
        self._outputs = {value.name for value in graph.output}
        self._sizes = {
            value.name: value.type.tensor_type.shape.dim[-1].dim_value
            for value in declared_values(graph)
            if value.type.tensor_type.shape.dim
        }
        self._constants = {
            tensor.name: tuple(tensor.dims)
            for tensor in graph.initializer
            if tensor.data_type == _FLOAT32
            and tensor.name not in self._outputs
            and self._scope.constant(tensor.name) is not None
        }

    def groups(self, chosen: Collection[str]) -> list[_Group]:
        """The values that `chosen` products read, in order, and what is divided for each."""
        products: dict[str, list[onnx.NodeProto]] = {}
        for node in self._links.nodes:
            if node.name in chosen and self._is_product(node):
                products.setdefault(node.input[0], []).append(node)
        return [
            group
            for value, nodes in products.items()
            if (group := self._group(value, nodes)) is not None
        ]

    def _group(self, value: str, products: Sequence[onnx.NodeProto]) -> _Group | None:
        places = {self._links.places[node.name] for node in products}
        # Weights that others read too would be stored twice.
        if any(set(self._links.readers[node.input[1]]) - places for node in products):
            return None
        width = self._rows(products[0])
        if any(self._rows(node) != width for node in products):
            return None
        found = None
        if set(self._links.readers[value]) == places and value not in self._outputs:
            found = self._folds(value, width)
        folds, between = found if found is not None else (None, ())
        return _Group(value, tuple(products), folds, tuple(between))

    def _is_product(self, node: onnx.NodeProto) -> bool:
        if node.domain not in ("", "ai.onnx") or node.op_type not in ("MatMul", "Gemm"):
            return False
        # Its own weights, and not what another graph or a caller gives.
        if len(self._constants.get(node.input[1], ())) != _MATRIX:
            return False
        return not attribute_of(node, "transA", 0)

    def _rows(self, node: onnx.NodeProto) -> int:
        return self._constants[node.input[1]][_summed_axis(node)]

    def _folds(
        self, value: str, width: int
    ) -> tuple[tuple[tuple[onnx.NodeProto, int, int], ...], list[str]] | None:
        """The constants that make `value`, whose last axis has `width`, and the values between."""
        node = self._links.maker(value)
        if node is None or node.output[0] != value:
            return None
        if (places := _NORMALIZATIONS.get(node.op_type)) is not None:
            return self._of_normalization(node, places, width)
        if node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type in _HOMOGENEOUS:
            return self._before(node.input[0], width)
        if node.op_type in ("Add", "Mul"):
            return self._of_elements(node, width)
        if self._is_product(node) and self._rows_alone(node):
            return self._of_product(node, width)
        return None

    def _before(
        self, value: str, width: int
    ) -> tuple[tuple[tuple[onnx.NodeProto, int, int], ...], list[str]] | None:
        """As `_folds`, of a value that only the node behind it may read."""
        readers = self._links.readers.get(value, ())
        if len(readers) != 1 or value in self._outputs:
            return None
        # As the square of itself it would be divided twice.
        if list(self._links.nodes[next(iter(readers))].input).count(value) != 1:
            return None
        if self._sizes.get(value) != width:
            return None
        found = self._folds(value, width)
        return None if found is None else (found[0], [value, *found[1]])

    def _of_normalization(
        self, node: onnx.NodeProto, places: Sequence[int], width: int
    ) -> tuple[tuple[tuple[onnx.NodeProto, int, int], ...], list[str]] | None:
        given = [at for at in places if len(node.input) > at and node.input[at]]
        if not given or any(self._constants.get(node.input[at]) != (width,) for at in given):
            return None
        return tuple((node, at, 0) for at in given), []

    def _of_elements(
        self, node: onnx.NodeProto, width: int
    ) -> tuple[tuple[tuple[onnx.NodeProto, int, int], ...], list[str]] | None:
        fixed = [at for at in (0, 1) if node.input[at] in self._constants]
        if len(fixed) == 1:
            (at,) = fixed
            dims = self._constants[node.input[at]]
            if (dims[:-1] and max(dims[:-1]) != 1) or (dims or (1,))[-1] not in (1, width):
                return None
            own = ((node, at, -1),)
            if node.op_type == "Mul":
                return own, []
            found = self._before(node.input[1 - at], width)
            return None if found is None else ((*own, *found[0]), found[1])
        if fixed or node.op_type == "Add":
            return None
        # Of a product of two values, one is divided.
        for at in (0, 1):
            if (found := self._before(node.input[at], width)) is not None:
                return found
        return None

    def _rows_alone(self, node: onnx.NodeProto) -> bool:
        plain = attribute_of(node, "alpha", 1.0) == 1.0 and attribute_of(node, "beta", 1.0) == 1.0
        return plain and len(self._links.readers[node.input[1]]) == 1

    def _of_product(
        self, node: onnx.NodeProto, width: int
    ) -> tuple[tuple[tuple[onnx.NodeProto, int, int], ...], list[str]] | None:
        made: tuple[tuple[onnx.NodeProto, int, int], ...] = ((node, 1, 1 - _summed_axis(node)),)
        if len(node.input) > _MATRIX and node.input[2]:
            dims = self._constants.get(node.input[2])
            if dims is None or dims[-1:] != (width,) or (len(dims) > 1 and max(dims[:-1]) != 1):
                return None
            made = (*made, (node, 2, -1))
        return made, []


def _summed_axis(node: onnx.NodeProto) -> int:
    """The axis of a product's weights that it sums over."""
    return 1 if attribute_of(node, "transB", 0) else 0


class _Writer:
    """Changes the constants and nodes of a model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._graph = model.graph
        self._names = all_names(model)
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._added: list[onnx.NodeProto] = []

    def weights(self, group: _Group) -> list[Array]:
        """The weights of its products, as [channels, outputs]."""
        import onnx

        arrays = [
            (node, onnx.numpy_helper.to_array(self._tensors[node.input[1]]))
            for node in group.products
        ]
        return [each.T if _summed_axis(node) else each for node, each in arrays]

    def multiply_weights(self, group: _Group, factors: Array) -> None:
        """Multiply the rows of the weights, each once."""
        axes = {node.input[1]: _summed_axis(node) for node in group.products}
        for name, axis in axes.items():
            self._scale(self._tensors[name], name, factors, axis)

    def divide_constants(
        self, folds: Sequence[tuple[onnx.NodeProto, int, int]], factors: Array
    ) -> None:
        """Give nodes constants of their own that are divided."""
        import onnx

        for node, at, axis in folds:
            old = self._tensors[node.input[at]]
            new = onnx.TensorProto()
            name = free_name(f"{old.name}_smoothed", self._names)
            self._scale(new, name, 1 / factors, axis, old)
            self._graph.initializer.append(new)
            self._tensors[name] = self._graph.initializer[-1]
            node.input[at] = name

    def divide_by_node(self, group: _Group, factors: Array) -> str:
        """Have the products read a new value: the divided one; its name."""
        import onnx

        made = free_name(f"{group.value}_smoothed", self._names)
        constant = free_name(f"{group.value}_factors", self._names)
        self._graph.initializer.append(onnx.numpy_helper.from_array(1 / factors, constant))
        name = free_name(f"{group.value}_smooth", self._names)
        self._added.append(onnx.helper.make_node("Mul", [group.value, constant], [made], name))
        for declared in declared_values(self._graph):
            if declared.name == group.value:
                copy = onnx.ValueInfoProto()
                copy.CopyFrom(declared)
                copy.name = made
                self._graph.value_info.append(copy)
                break
        for node in group.products:
            node.input[0] = made
        return made

    def end(self) -> None:
        """Put added nodes before the first that reads what they make, and drop what is unread."""
        waiting = {node.output[0]: node for node in self._added}
        nodes = []
        for node in self._graph.node:
            nodes += [waiting.pop(name) for name in dict.fromkeys(node.input) if name in waiting]
            nodes.append(node)
        if self._added:
            set_nodes(self._graph, nodes)
        drop_unread(self._model)

    def _scale(
        self,
        target: onnx.TensorProto,
        name: str,
        factors: Array,
        axis: int,
        source: onnx.TensorProto | None = None,
    ) -> None:
        import onnx

        values = onnx.numpy_helper.to_array(target if source is None else source)
        shape = [1] * max(values.ndim, 1)
        shape[axis] = factors.size
        made = np.asarray(values * factors.reshape(shape), np.float32)
        target.CopyFrom(onnx.numpy_helper.from_array(made, name))
