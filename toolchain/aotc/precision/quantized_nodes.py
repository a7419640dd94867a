"""Which nodes of a model are quantized, in which form each, and why the others are not."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from aotc.base.records import field, record
from aotc.graph.partition.assignment import flops_of
from aotc.graph.view import (
    NodeLinks,
    attribute_of,
    constant_tensors,
    declared_values,
    every_graph,
)
from aotc.precision.kernel_rates import FEW_CHANNELS, KernelRates
from aotc.precision.quantize import FLOAT_OUTPUTS, Chosen, Scope, scopes_of
from aotc.precision.smoothing import Channels
from aotc.spec.precision import QuantizedForm
from aotc.spec.providers import STANDARD
from aotc.spec.variant import KEPT, PassRecord

if TYPE_CHECKING:
    import onnx


PROFILE: Final = f"{KEPT}profile"
ISLAND: Final = f"{KEPT}island"
NOT_OBSERVED: Final = f"{KEPT}not observed"
NOT_WRITTEN: Final = f"{KEPT}passed over by the quantizer"
UNFUSED: Final = f"{KEPT}not fused by ONNX Runtime"
_MAX_ROUNDS: Final = 64
_FLOAT_BYTES: Final = 4
_FLOAT32: Final = 1
_MATRIX: Final = 2
_LIMITS: Final = frozenset({"Clip", "Relu"})
# They change no values, and copy none.
_UNMOVED: Final = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
# Operators that gain by integers themselves.
PRODUCTS: Final = frozenset({"Conv", "Gemm", "MatMul"})
# Operators that take integers between those, so that fewer values are converted.
CARRIERS: Final = frozenset(
    {
        "Add",
        "AveragePool",
        "Clip",
        "Concat",
        "Flatten",
        "GlobalAveragePool",
        "LeakyRelu",
        "MaxPool",
        "Mul",
        "Pad",
        "Relu",
        "Reshape",
        "Resize",
        "Sigmoid",
        "Slice",
        "Split",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)
# Operators that each form can quantize.
BY_FORM: Final[Mapping[str, frozenset[str]]] = {
    "static": PRODUCTS | CARRIERS | {"Gather", "LSTM"},
    "dynamic": frozenset({"Gather", "Gemm", "LSTM", "MatMul"}),
    "mixed": PRODUCTS | CARRIERS | {"Gather", "LSTM"},
    "weights": frozenset({"Gather", "Gemm", "MatMul"}),
}
# Why a node stays, as the manifest counts it.
NOT_CONSTANT: Final = "weights that are not constant"
NOT_FINITE: Final = "values that are not finite"
ATTRIBUTES: Final = "attributes"
SMALL: Final = "small table"
EMPTY: Final = "weights without elements"
RANK: Final = "weights of more than two dims"
# A smaller table is not worth a scale for each row.
_MIN_TABLE: Final = 16384


@record(kw_only=False)
class Choice:
    """What is quantized; `reasons` says by name why each other node that could be is left.

    `boundaries` is the number of values that are converted for the static form.
    """

    chosen: Chosen
    reasons: Mapping[str, str]
    boundaries: int

    def limited(self, written: Chosen) -> Choice:
        """The choice if only `written` nodes of it were quantized; the others have a reason."""
        missed = self.chosen.names() - written.names()
        reasons = {**self.reasons, **dict.fromkeys(sorted(missed), NOT_WRITTEN)}
        return Choice(written, reasons, self.boundaries)

    def matched(self) -> dict[str, int]:
        """The counts that stand in the record of the pass."""
        counts = Counter(self.reasons.values())
        found = {"quantized": len(self.chosen), "boundaries": self.boundaries, **counts}
        for word, names in (
            ("in each call", self.chosen.dynamic),
            ("tables", self.chosen.tables),
        ):
            if names:
                found[word] = len(names)
        return dict(sorted(found.items()))


@record(kw_only=False)
class Observed:
    """The range of its values, None if one was not finite, and its largest shape.

    `clipped` is the range without outliers; None: there are none, or nobody asked.
    """

    bounds: tuple[float, float] | None
    shape: tuple[int, ...]
    clipped: tuple[float, float] | None = None
    channels: Channels | None = None


def choose(
    model: onnx.ModelProto,
    form: QuantizedForm,
    operators: Collection[str],
    kept: Collection[str],
    observed: Mapping[str, Observed],
    weighs: Weighs,
    unfused: Collection[str] = (),
    *,
    widens: bool = False,
) -> Choice:
    """Choose among the nodes of `model`, whose weights are in memory and whose values have types.

    `operators` limits them, if there are any.  `kept` are names of nodes that stay in float32,
    `observed` is what calibration showed of activations, for the static form, and `weighs` what is
    gained.  `unfused` are weights whose products ONNX Runtime would compute in float32 all the
    same.  In the form `mixed` products that gain nothing with observed ranges are dynamic.  With
    `widens`, weights of the last products have 8 bits.
    """
    wanted = BY_FORM[form].intersection(operators or BY_FORM[form])
    reasons: dict[str, str] = {}
    static: list[str] = []
    found: dict[str, set[str]] = {"dynamic": set(), "weights": set(), "tables": set()}
    activations = _activations(model)
    integers: set[str] = set()
    times = ProductTimes(model, observed, weighs)
    for scope in scopes_of(model.graph):
        for node in scope.graph.node:
            if not is_standard(node, wanted):
                continue
            carrier = node.op_type in CARRIERS
            if carrier and scope.inner:
                continue
            if node.op_type == "Gather" and not looks_up(node, scope):
                continue
            if node.name in kept:
                reasons[node.name] = PROFILE
            elif not carrier and (why := why_not(node, scope, form)):
                reasons[node.name] = f"{KEPT}{why}"
            elif any(name in unfused for name in node.input):
                reasons[node.name] = UNFUSED
            elif node.op_type == "Gather":
                found["tables"].add(node.name)
            elif form == "weights":
                found["weights"].add(node.name)
            elif form == "dynamic" and times.is_quicker(node, "float32", "dynamic"):
                reasons[node.name] = ISLAND
            elif form == "dynamic" or node.op_type == "LSTM" or _is_split(node, scope):
                found["dynamic"].add(node.name)
            elif scope.inner:
                # What is computed in a body is not observed.
                if node.op_type == "Conv":
                    reasons[node.name] = f"{KEPT}body"
                else:
                    found["dynamic"].add(node.name)
            elif carrier and not _takes_integers(node, activations, integers):
                continue
            elif why := _why_not_static(node, activations, observed):
                if form == "mixed" and node.op_type in FLOAT_OUTPUTS:
                    found["dynamic"].add(node.name)
                elif not carrier:
                    reasons[node.name] = why
            else:
                static.append(node.name)
                if node.op_type not in FLOAT_OUTPUTS:
                    integers.update(node.output)
    if weighs.speed:
        worth = Weighing(model, observed, times, mixes=form == "mixed").worth(static)
    else:
        worth = Worth(frozenset(static), 0)
    nodes = {node.name: node for node in model.graph.node}
    for name in static:
        if name in worth.nodes or nodes[name].op_type in CARRIERS:
            continue
        if form == "mixed" and times.is_quicker(nodes[name], "dynamic", "float32"):
            found["dynamic"].add(name)
        else:
            reasons[name] = ISLAND
    chosen = Chosen(
        worth.nodes,
        frozenset(found["dynamic"]),
        frozenset(found["weights"]),
        frozenset(found["tables"]),
        last_products(model, found["weights"]) if widens else frozenset(),
    )
    return Choice(chosen, reasons, worth.boundaries)


def last_products(model: onnx.ModelProto, products: Collection[str]) -> frozenset[str]:
    """Those of `products` whose results reach no other of them, such as a decoder's head."""
    links = NodeLinks(model.graph.node)
    before: set[int] = set()
    pending = [links.places[name] for name in products if name in links.places]
    while pending:
        for earlier in links.before[pending.pop()]:
            if earlier not in before:
                before.add(earlier)
                pending.append(earlier)
    return frozenset(n for n in products if n in links.places and links.places[n] not in before)


def observable(model: onnx.ModelProto, operators: Collection[str]) -> tuple[str, ...]:
    """The activations of the main graph whose ranges the static form may need, in order."""
    wanted = BY_FORM["static"].intersection(operators or BY_FORM["static"])
    activations = _activations(model)
    found: dict[str, None] = {}
    for node in model.graph.node:
        if is_standard(node, wanted):
            found.update(dict.fromkeys(n for n in (*node.input, *node.output) if n in activations))
    return tuple(found)


def _takes_integers(
    node: onnx.NodeProto, activations: Collection[str], integers: Collection[str]
) -> bool:
    """Whether all that a carrier reads may be integers: sums of products are exact in float32."""
    read = [name for name in node.input if name in activations]
    return bool(read) and all(name in integers for name in read)


def _why_not_static(
    node: onnx.NodeProto,
    activations: Collection[str],
    observed: Mapping[str, Observed],
) -> str:
    values = [name for name in (*node.input, *node.output) if name in activations]
    if any(name not in observed for name in values) or node.output[0] not in activations:
        return NOT_OBSERVED
    if any(observed[name].bounds is None for name in values):
        return f"{KEPT}{NOT_FINITE}"
    return ""


def _activations(model: onnx.ModelProto) -> frozenset[str]:
    """Values of the main graph that are float32 tensors and no constants."""
    graph = model.graph
    known = {tensor.name for tensor in graph.initializer}
    known |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    return frozenset(
        value.name
        for value in declared_values(graph)
        if value.type.tensor_type.elem_type == _FLOAT32 and value.name not in known
    )


@record(kw_only=False)
class Worth:
    """The nodes that are quantized, and how many values are converted, by name."""

    nodes: frozenset[str]
    boundaries: int


@record(kw_only=False)
class Weighs:
    """By what it is weighed what is quantized.

    `sizes` are those of named dims, for shapes that were not observed; where it is not for `speed`,
    all that can be quantized is.
    """

    rates: KernelRates
    sizes: Mapping[str, int] = field(default_factory=dict)
    speed: bool = True


class ProductTimes:
    """Predicted seconds of the products of a main graph in each form."""

    def __init__(
        self, model: onnx.ModelProto, observed: Mapping[str, Observed], weighs: Weighs
    ) -> None:
        """By the shapes of `observed`, else those declared, at the sizes that are weighed by."""
        self.weighs = weighs
        self._shapes: dict[str, Sequence[int] | None] = {
            value.name: _declared_shape(value, weighs.sizes)
            for value in declared_values(model.graph)
        }
        self._shapes |= {name: each.shape for name, each in observed.items()}
        self._weights = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}

    def seconds(self, node: onnx.NodeProto, form: str) -> float | None:
        """The time of a product in a form; None where shapes are not known."""
        shape = self._weights.get(node.input[1])
        given, made = self._shapes.get(node.input[0]), self._shapes.get(node.output[0])
        if shape is None or given is None or made is None or node.op_type not in PRODUCTS:
            return None
        operations = flops_of(node.op_type, [tuple(given), shape], [tuple(made)])
        width = _FLOAT_BYTES if form == "float32" else 1
        rate = self.weighs.rates.rates.get(f"{kernel_of(node, shape)} {form}")
        return None if rate is None else rate.seconds(operations, width * math.prod(shape))

    def is_quicker(self, node: onnx.NodeProto, form: str, other: str) -> bool:
        """Whether a product is quicker in `form`, as far as is known and counts."""
        one, two = self.seconds(node, form), self.seconds(node, other)
        return self.weighs.speed and one is not None and two is not None and one < two


def _declared_shape(value: onnx.ValueInfoProto, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    shape = [sizes.get(dim.dim_param, 0) or dim.dim_value for dim in tensor.shape.dim]
    return tuple(shape) if all(size > 0 for size in shape) else None


class Weighing:
    """Weighs which nodes are worth their boundaries: conversions between float32 and integers.

    Every node is quantized or not.  A value that integers read and float32 nodes make is quantized
    once, a value that integers make and float32 nodes read is dequantized once; products write
    either at no cost.  A set of nodes is sought whose gain, less the cost of its boundaries, no
    change of one node or of one connected region improves.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        observed: Mapping[str, Observed],
        times: ProductTimes,
        *,
        mixes: bool = False,
    ) -> None:
        """All by the shapes of `observed`.  Where it `mixes`, what is left may be dynamic."""
        graph = model.graph
        self._times, self._mixes = times, mixes
        self._rates = times.weighs.rates
        self._links = NodeLinks(graph.node)
        self._observed = observed
        self._outputs = {value.name for value in graph.output}

    def worth(self, candidates: Sequence[str]) -> Worth:
        """The best of `candidates`, all of which are looked at as quantized first."""
        taken = set(candidates)
        for _ in range(_MAX_ROUNDS):
            changed = self._improve_nodes(candidates, taken)
            changed |= self._drop_regions(candidates, taken)
            stranded = self._stranded(taken)
            taken -= stranded
            candidates = [name for name in candidates if name not in stranded]
            if not changed and not stranded:
                break
        values = {value for name in taken for value in self._values(name)}
        return Worth(frozenset(taken), sum(self._crosses(value, taken) for value in values))

    def _stranded(self, taken: Collection[str]) -> set[str]:
        """Carriers that read what float32 nodes make: it would be rounded for nothing."""
        found: set[str] = set()
        while True:
            more = {
                name
                for name in taken
                if name not in found
                and self._node(name).op_type in CARRIERS
                and any(self._is_float(value, taken, found) for value in self._node(name).input)
            }
            if not more:
                return found
            found |= more

    def _is_float(self, value: str, taken: Collection[str], left: Collection[str]) -> bool:
        """Whether an observed value is not made in integers."""
        if value not in self._observed:
            return False
        maker = self._links.maker(value)
        return (
            maker is None
            or maker.name not in taken
            or maker.name in left
            or maker.op_type in FLOAT_OUTPUTS
        )

    def _improve_nodes(self, candidates: Sequence[str], taken: set[str]) -> bool:
        """Change single nodes while that helps; of equal costs, float32 is taken."""
        pending, waiting, changed = deque(reversed(candidates)), set(candidates), False
        allowed, steps = frozenset(candidates), _MAX_ROUNDS * len(candidates)
        while pending and steps:
            steps -= 1
            name = pending.popleft()
            waiting.discard(name)
            others = taken - {name} if name in taken else None
            values = self._values(name)
            within = {*taken, name}
            without = others if others is not None else taken
            cost = sum(self._cost(value, within) for value in values) - self._gain(name)
            cost -= sum(self._cost(value, without) for value in values)
            wanted = cost < 0
            if wanted == (name in taken):
                continue
            changed = True
            (taken.add if wanted else taken.discard)(name)
            for near in self._neighbours(name):
                if near in allowed and near not in waiting:
                    waiting.add(near)
                    pending.append(near)
        return changed

    def _drop_regions(self, candidates: Sequence[str], taken: set[str]) -> bool:
        """Leave connected nodes that together cost more than they gain."""
        changed, seen = False, set[str]()
        for first in candidates:
            if first not in taken or first in seen:
                continue
            region, pending = {first}, [first]
            while pending:
                for near in self._neighbours(pending.pop()):
                    if near in taken and near not in region:
                        region.add(near)
                        pending.append(near)
            seen |= region
            values = {value for name in region for value in self._values(name)}
            rest = taken - region
            cost = sum(self._cost(value, taken) - self._cost(value, rest) for value in values)
            if cost >= sum(self._gain(name) for name in region):
                taken -= region
                changed = True
        return changed

    def _values(self, name: str) -> list[str]:
        node = self._node(name)
        found = dict.fromkeys((*node.input, *node.output))
        return [value for value in found if value in self._observed]

    def _node(self, name: str) -> onnx.NodeProto:
        return self._links.nodes[self._links.places[name]]

    def _readers(self, value: str) -> list[str]:
        return [self._links.nodes[at].name for at in self._links.readers.get(value, ())]

    def _neighbours(self, name: str) -> list[str]:
        found: dict[str, None] = {}
        for value in self._values(name):
            if (maker := self._links.maker(value)) is not None:
                found[maker.name] = None
            found.update(dict.fromkeys(self._readers(value)))
        return [near for near in found if near != name]

    def _crosses(self, value: str, taken: Collection[str]) -> bool:
        """Whether a value is converted."""
        readers = self._readers(value)
        integers = any(reader in taken for reader in readers)
        floats = value in self._outputs or any(reader not in taken for reader in readers)
        maker = self._links.maker(value)
        if maker is None or maker.name not in taken:
            return integers
        if maker.op_type in FLOAT_OUTPUTS:
            return integers and floats
        return floats

    def _cost(self, value: str, taken: Collection[str]) -> float:
        """Seconds that are spent on converting a value."""
        if not self._crosses(value, taken):
            return 0.0
        maker = self._links.maker(value)
        from_integers = (
            maker is not None and maker.name in taken and maker.op_type not in FLOAT_OUTPUTS
        )
        rate = self._rates.rates["dequantize" if from_integers else "quantize"]
        return rate.seconds(math.prod(self._observed[value].shape))

    def _gain(self, name: str) -> float:
        """Seconds that a node takes less in integers; less than nothing where they are slower."""
        node = self._node(name)
        output = self._observed[node.output[0]].shape
        elements = float(math.prod(output))
        if node.op_type in CARRIERS:
            maker = self._links.maker(node.input[0])
            if node.op_type in _UNMOVED:
                return 0.0
            if node.op_type in _LIMITS:
                # Integers are limited where they are rounded; products limit floats as well.
                fused = maker is not None and maker.op_type in PRODUCTS
                return 0.0 if fused else self._rates.of("Relu", "float32").seconds(elements)
            exact, integers = (self._rates.of(node.op_type, form) for form in ("float32", "static"))
            return exact.seconds(elements) - integers.seconds(elements)
        mixed = self._mixes and node.op_type in FLOAT_OUTPUTS
        others = [self._times.seconds(node, form) for form in ("float32", *["dynamic"] * mixed)]
        integers_take = self._times.seconds(node, "static")
        assert integers_take is not None
        return min(seconds for seconds in others if seconds is not None) - integers_take


def kernel_of(node: onnx.NodeProto, weights: Sequence[int]) -> str:
    """The kind of kernel that computes a product whose weights have the shape `weights`."""
    if node.op_type != "Conv":
        return "product"
    if attribute_of(node, "group", 1) == 1:
        return "convolution" if weights[1] > FEW_CHANNELS else "first convolution"
    return "depthwise" if weights[1] == 1 else "grouped"


def why_not(node: onnx.NodeProto, scope: Scope, form: QuantizedForm) -> str:
    """Why a product, a lookup or a recurrence cannot be quantized in a form; empty if it can.

    A Gather reads a constant of float32.  The values of constants are read.
    """
    if node.op_type == "Gather":
        return _why_no_table(node, scope)
    places = (1, 2) if node.op_type == "LSTM" else (1,)
    for at in places:
        found = scope.constant(node.input[at]) if len(node.input) > at else None
        if found is None or found[0].data_type != _FLOAT32:
            return NOT_CONSTANT
        if 0 in found[0].dims:
            return EMPTY
        if not _is_finite(found[0]):
            return NOT_FINITE
    if node.op_type == "Gemm":
        plain = attribute_of(node, "alpha", 1.0) == 1.0 and attribute_of(node, "beta", 1.0) == 1.0
        return "" if plain else ATTRIBUTES
    if node.op_type == "LSTM":
        # The integer kernel has no other layout, and takes no limits of its own.
        peculiar = attribute_of(node, "layout", 0) or attribute_of(node, "clip", 0.0)
        return ATTRIBUTES if peculiar or attribute_of(node, "input_forget", 0) else ""
    rank = len(_tensor(node, scope).dims)
    if node.op_type == "MatMul" and rank < _MATRIX:
        return ATTRIBUTES
    # Blocks are of matrices alone.
    return RANK if form == "weights" and rank > _MATRIX else ""


def _is_split(node: onnx.NodeProto, scope: Scope) -> bool:
    """Whether observed ranges do not suffice for a product: what is transposed has none, a sum with
    another bias than a constant for each column no scale, nor a column of several matrices.
    """
    if node.op_type == "MatMul":
        return len(_tensor(node, scope).dims) > _MATRIX
    if node.op_type != "Gemm" or attribute_of(node, "transA", 0):
        return node.op_type == "Gemm"
    if len(node.input) < 3 or not node.input[2]:
        return False
    bias = scope.constant(node.input[2])
    return bias is None or len(bias[0].dims) != 1 or not _is_finite(bias[0])


def _why_no_table(node: onnx.NodeProto, scope: Scope) -> str:
    found = scope.constant(node.input[0])
    assert found is not None
    tensor = found[0]
    if len(tensor.dims) != _MATRIX or attribute_of(node, "axis", 0) != 0:
        return ATTRIBUTES
    if tensor.dims[0] * tensor.dims[1] < _MIN_TABLE:
        return SMALL
    return "" if _is_finite(tensor) else NOT_FINITE


def _tensor(node: onnx.NodeProto, scope: Scope) -> onnx.TensorProto:
    found = scope.constant(node.input[1])
    assert found is not None
    return found[0]


def _is_finite(tensor: onnx.TensorProto) -> bool:
    import onnx

    return bool(np.isfinite(onnx.numpy_helper.to_array(tensor)).all())


def looks_up(node: onnx.NodeProto, scope: Scope) -> bool:
    """Whether a Gather reads a constant of float32."""
    found = scope.constant(node.input[0])
    return found is not None and found[0].data_type == _FLOAT32


def is_standard(node: onnx.NodeProto, operators: Collection[str]) -> bool:
    """Whether a node is one of ONNX's own `operators`."""
    return node.domain in STANDARD and node.op_type in operators


# How much of a model is quantized, of its products with constant weights: a convolution that a form
# does not have is no less a product than one that would not gain by it.


# By operator, the inputs that are its weights.
_WEIGHTS: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys((*PRODUCTS, "ConvTranspose"), (1,)),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), (1, 2)),
}
# Below this share of products, or of their weights, a variant is hardly smaller or faster.
_LITTLE: Final = 0.5


@record(kw_only=False)
class QuantizedShare:
    """Products that are quantized, those that stay in float32 by operator, and shares of bytes."""

    products: int
    left: Counter[str]
    share: float

    @property
    def is_little(self) -> bool:
        """Whether fewer than half are quantized, of products or of the bytes of their weights."""
        total = self.products + self.left.total()
        return bool(total) and (self.products < _LITTLE * total or self.share < _LITTLE)


def quantized_share(
    made: PassRecord, source: onnx.ModelProto, operators: Collection[str] = ()
) -> QuantizedShare:
    """What the pass `quantize` did by its record `made`; `operators` limit it, if there are any.

    `source` needs no external data.
    """
    form = str(made.options["form"])
    wanted = BY_FORM[form].intersection(operators or BY_FORM[form])
    kept = frozenset(made.kept)
    sizes = {
        name: math.prod(tensor.dims)
        for graph in every_graph(source)
        for name, tensor in constant_tensors(graph).items()
        if tensor.data_type == _FLOAT32
    }
    left: Counter[str] = Counter()
    products = quantized = total = 0
    for graph in every_graph(source):
        for node in graph.node:
            read = [node.input[at] for at in _WEIGHTS.get(node.op_type, ()) if at < len(node.input)]
            if not read or any(name not in sizes for name in read):
                continue
            elements = sum(sizes[name] for name in read)
            total += elements
            if node.op_type in wanted and node.name not in kept:
                products += 1
                quantized += elements
            else:
                left[node.op_type] += 1
    return QuantizedShare(products, left, quantized / total if total else 1.0)
