"""Claims become partitions: each node in exactly one, each partition convex, without cycles.

Every node is assigned to the first provider that claims it.  A node's level is the maximum number
of provider changes on any path to it; nodes of one provider and one level form one partition.
Levels never fall along an edge and rise with every change of provider.  A path that leaves a
partition therefore never returns to it, and partitions ordered by (level, provider) run without a
cycle.  Partitions that cost more than they gain, by operations and bytes, go to other providers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from aotc.base.records import record
from aotc.graph.types import Scope, Shape, scopes
from aotc.graph.view import GraphView, has_subgraphs
from aotc.spec.providers import Rates

if TYPE_CHECKING:
    import onnx


@record(kw_only=False)
class Part:
    """One partition of the main graph: indices of its nodes, in execution order."""

    provider: str
    level: int
    nodes: tuple[int, ...]


@record(kw_only=False)
class Assignment:
    """Partitions in execution order, and the provider of every node, subgraph nodes included."""

    parts: tuple[Part, ...]
    providers: Mapping[str, str]
    reassigned: Mapping[str, str]
    """By node, why it is not on the first provider that claimed it."""


@record
class Rules:
    """When a partition is too small; `rates` are by provider, `sizes` at the optimal shape."""

    min_nodes: int = 1
    # Providers whose partitions cannot be inside a control-flow subgraph.
    not_in_subgraphs: frozenset[str] = frozenset()
    rates: Mapping[str, Rates] | None = None
    sizes: Sizes | None = None


def assign(
    graph: GraphView, claims: Sequence[tuple[str, frozenset[str]]], rules: Rules
) -> tuple[Assignment, tuple[str, ...]]:
    """Assign nodes to partitions by `claims`: pairs of provider and nodes, first choice first.

    Nodes of a partition that is too small by `rules` go to the next provider that claims them, the
    smallest partitions first, until none is left; the last provider keeps all.  Nodes in
    control-flow subgraphs follow their own claims.  The second result is the unclaimed nodes; if
    there are any, the assignment is empty.
    """
    order = {name: index for index, (name, _) in enumerate(claims)}
    claimants = [_claimants(node.name, claims) for node in graph.nodes]
    missing = [n.name for n, names in zip(graph.nodes, claimants, strict=True) if not names]
    own = {n.name: names for n, names in zip(graph.nodes, claimants, strict=True)}
    owners = {node.name: body.owner for body in graph.bodies for node in body.nodes}
    inner_claimants = {
        # Such a provider takes a subgraph with its owner or not at all.
        inner: [
            name
            for name in _claimants(inner, claims)
            if name not in rules.not_in_subgraphs or name in own[owner]
        ]
        for inner, owner in owners.items()
    }
    missing += [name for name, names in inner_claimants.items() if not names]
    if missing:
        return Assignment((), {}, {}), tuple(missing)
    chosen = [0] * len(graph.nodes)
    reasons: dict[str, str] = {}
    placement = _SubgraphPlacement(inner_claimants, order, rules.not_in_subgraphs)
    costs = _PartitionCosts(graph, claimants, rules, placement)
    while True:
        placed = [names[index] for names, index in zip(claimants, chosen, strict=True)]
        parts = _partitions(graph.before, placed, order)
        moved = costs.partitions_to_move(parts, placed, chosen)
        if not moved:
            break
        for part, why in moved:
            for index in part.nodes:
                chosen[index] += 1
                reasons[graph.nodes[index].name] = why
    providers = {node.name: name for node, name in zip(graph.nodes, placed, strict=True)}
    for inner, owner in owners.items():
        providers[inner] = placement.provider_of(inner, providers[owner])
    return Assignment(tuple(parts), providers, reasons), ()


def _claimants(name: str, claims: Sequence[tuple[str, frozenset[str]]]) -> list[str]:
    return [provider for provider, nodes in claims if name in nodes]


def _partitions(
    predecessors: Sequence[Sequence[int]], placed: Sequence[str], order: Mapping[str, int]
) -> list[Part]:
    levels: list[int] = []
    groups: dict[tuple[int, str], list[int]] = {}
    for index, provider in enumerate(placed):
        level = 0
        for source in predecessors[index]:
            level = max(level, levels[source] + (placed[source] != provider))
        levels.append(level)
        groups.setdefault((level, provider), []).append(index)
    keys = sorted(groups, key=lambda key: (key[0], order[key[1]]))
    return [Part(provider, level, tuple(groups[level, provider])) for level, provider in keys]


@record(kw_only=False)
class _SubgraphPlacement:
    """The provider of each subgraph node, from its claimants and the `order` of providers."""

    claimants: Mapping[str, Sequence[str]]
    order: Mapping[str, int]
    not_in_subgraphs: frozenset[str]

    def provider_of(self, node: str, owner: str) -> str:
        """The provider of a subgraph node whose owner is on the provider `owner`.

        It is never one that comes before `owner` in the order.
        """
        names = self.claimants[node]
        later = [
            name
            for name in names
            if self.order[name] >= self.order[owner]
            and (name not in self.not_in_subgraphs or name == owner)
        ]
        return (later or names)[0]


class _PartitionCosts:
    """Which partitions cost more than they gain; what does not change is computed once."""

    def __init__(
        self,
        graph: GraphView,
        claimants: Sequence[Sequence[str]],
        rules: Rules,
        places: _SubgraphPlacement,
    ) -> None:
        self._claimants = claimants
        self._rules = rules
        self._has_rates = rules.rates is not None and rules.sizes is not None
        if not self._has_rates:
            return
        sizes = rules.sizes.values if rules.sizes is not None else {}
        producers, readers = graph.producers, graph.readers
        # By node: the values it reads with their producers, and it makes with their consumers.
        self._values_read = [
            [(producers[v], v, sizes.get(v, 0)) for v in names if v in producers]
            for names in graph.reads
        ]
        self._values_made = [
            [(readers[v], v, sizes.get(v, 0)) for v in names if v in readers]
            for names in graph.makes
        ]
        # By the nodes of a partition: seconds gained minus those of its boundary.
        self._net_gains: dict[tuple[int, ...], float] = {}
        self._last_chosen = [0] * len(graph.nodes)
        rates = rules.rates or {}
        self._seconds = {
            name: [_seconds(node.name, rate, rules.sizes) for node in graph.nodes]
            for name, rate in rates.items()
        }
        # An owner's cost includes its subgraphs, run where they run if it is on this provider.
        for index, node in enumerate(graph.nodes):
            inside = graph.inside.get(node.name, ())
            for name in claimants[index] if inside else ():
                self._seconds[name][index] += sum(
                    _seconds(inner, rates[places.provider_of(inner, name)], rules.sizes)
                    for inner in inside
                )

    def partitions_to_move(
        self, parts: Sequence[Part], placed: Sequence[str], chosen: Sequence[int]
    ) -> list[tuple[Part, str]]:
        """Partitions to move to other providers, with the reason; too small ones come first."""
        claimants, minimum = self._claimants, self._rules.min_nodes
        movable = [
            part
            for part in parts
            if all(chosen[index] + 1 < len(claimants[index]) for index in part.nodes)
        ]
        small = [part for part in movable if len(part.nodes) < minimum]
        if small:
            fewest = min(len(part.nodes) for part in small)
            return [
                (part, f"its partition has {fewest} nodes, fewer than {minimum}")
                for part in small
                if len(part.nodes) == fewest
            ]
        if not self._has_rates:
            return []
        self._invalidate(chosen)
        worst: list[tuple[float, Part]] = []
        for part in movable:
            if part.nodes not in self._net_gains:
                boundary = self._boundary_seconds(part, placed, chosen)
                self._net_gains[part.nodes] = (
                    self._gain(part, chosen) - boundary if boundary > 0 else 0.0
                )
            if (net_gain := self._net_gains[part.nodes]) < 0:
                worst.append((net_gain, part))
        # A few at a time, because moving one may join its neighbours.
        worst.sort(key=lambda entry: entry[0])
        chosen_worst = worst[: max(1, len(worst) // 4)]
        return [(part, "its boundaries cost more than it gains") for _, part in chosen_worst]

    def _invalidate(self, chosen: Sequence[int]) -> None:
        """Drop the results for partitions that contain a moved node, or are next to one."""
        moved = [
            i
            for i, (one, other) in enumerate(zip(chosen, self._last_chosen, strict=True))
            if one != other
        ]
        self._last_chosen = list(chosen)
        touched = set(moved)
        for index in moved:
            touched.update(producer for producer, _, _ in self._values_read[index])
            touched.update(
                consumer for consumers, _, _ in self._values_made[index] for consumer in consumers
            )
        self._net_gains = {k: v for k, v in self._net_gains.items() if touched.isdisjoint(k)}

    def _gain(self, part: Part, chosen: Sequence[int]) -> float:
        """Seconds that the provider saves compared with the next providers of the nodes."""
        next_providers = {self._claimants[index][chosen[index] + 1] for index in part.nodes}
        costs = [sum(self._seconds[name][i] for i in part.nodes) for name in next_providers]
        return max(costs) - sum(self._seconds[part.provider][i] for i in part.nodes)

    def _boundary_seconds(self, part: Part, placed: Sequence[str], chosen: Sequence[int]) -> float:
        """Seconds of the transfers that this provider needs and the next provider would not.

        Inputs and outputs of the whole graph are left out.
        """
        assert self._rules.rates is not None
        rate = self._rules.rates[part.provider]
        after = {index: self._claimants[index][chosen[index] + 1] for index in part.nodes}

        def provider_after(index: int) -> str:
            return after.get(index, placed[index])

        current: dict[str, int] = {}
        later: dict[str, int] = {}
        for index in part.nodes:
            for producer, value, size in self._values_read[index]:
                if placed[producer] != part.provider:
                    current[value] = size
                if provider_after(producer) != after[index]:
                    later[value] = size
            for consumers, value, size in self._values_made[index]:
                if any(placed[reader] != part.provider for reader in consumers):
                    current[value] = size
                if any(provider_after(reader) != after[index] for reader in consumers):
                    later[value] = size
        count = len(current) - len(later)
        return (
            count * rate.transfer_seconds
            + (sum(current.values()) - sum(later.values())) / rate.transfer_bytes
        )


def _seconds(name: str, rate: Rates, sizes: Sizes | None) -> float:
    """Seconds of one run of a node: the maximum of those for operations and for bytes."""
    cost = sizes.nodes.get(name) if sizes is not None else None
    return 0.0 if cost is None else max(cost.flops / rate.flops, cost.bytes / rate.bytes)


# Formulas: a convolution, matrix product or recurrence has two operations per multiply-add; any
# other node has one operation per output element. Bytes are those of all inputs, weights included,
# and outputs. Control-flow nodes cost nothing themselves; the nodes of their subgraphs do.


@record(kw_only=False)
class NodeCompute:
    """Operations and bytes of one run of a node; `known` is false if an output size is unknown."""

    flops: int
    bytes: int
    known: bool = True


@record(kw_only=False)
class Sizes:
    """The compute of every node and the bytes of every value, by name, at one shape.

    Both include subgraphs; if several subgraphs use one name for values of their own, the largest
    counts.  `shapes` are those of the main graph's values.
    """

    nodes: Mapping[str, NodeCompute]
    values: Mapping[str, int]
    shapes: Mapping[str, Shape]


def sizes_at(model: onnx.ModelProto, dims: Mapping[str, int], *, stated: bool = False) -> Sizes:
    """Costs of `model` with the named dims of its inputs at the sizes `dims`.

    External data is not read.  A node or value whose shape ONNX's inference does not find stays
    unknown; with `stated`, the shapes that `model` declares are used instead.

    A subgraph counts as one iteration, that of a loop as the first one; of an `If`, both branches
    count.
    """
    main, *subgraphs = scopes(model, dims, stated=stated)
    nodes = {node.name: _cost(node, main) for node in main.nodes}
    values = _sizes(main)
    inner: dict[str, int] = {}
    for subgraph in subgraphs:
        nodes |= {node.name: _cost(node, subgraph) for node in subgraph.nodes}
        for name, size in _sizes(subgraph).items():
            inner[name] = max(size, inner.get(name, 0))
    return Sizes(nodes=nodes, values={**inner, **values}, shapes=main.own)


def _cost(node: onnx.NodeProto, scope: Scope) -> NodeCompute:
    shapes = scope.shapes
    outputs = [shapes.get(name) for name in node.output if name]
    known = all(shape is not None for shape in outputs)
    if has_subgraphs(node):
        return NodeCompute(0, 0, known)
    inputs = [shapes.get(name) if name else None for name in node.input]
    values = [name for name in (*node.input, *node.output) if name]
    moved = sum(_bytes(scope, name) or 0 for name in values)
    made = [shape for shape in outputs if shape is not None]
    return NodeCompute(flops_of(node.op_type, inputs, made), moved, known)


def _sizes(scope: Scope) -> dict[str, int]:
    found = {name: _bytes(scope, name) for name in scope.own}
    return {name: size for name, size in found.items() if size is not None}


def flops_of(op: str, inputs: Sequence[Shape | None], outputs: Sequence[Shape]) -> int:
    """Floating-point operations of one run of an operator, from the shapes of its tensors.

    `inputs` has None for an unknown shape or an absent optional input.
    """
    elements = sum(math.prod(shape) for shape in outputs)
    first = inputs[0] if inputs else None
    weights = 3 if op == "QLinearConv" else 1
    second = inputs[weights] if len(inputs) > weights else None
    if "ConvTranspose" in op and second and first:
        return 2 * math.prod(first) * math.prod(second[1:])
    if "Conv" in op and second:
        return 2 * elements * math.prod(second[1:])
    if op == "Gemm" and first:
        # The first matrix may be transposed: divide its elements by the rows of the product.
        return 2 * elements * (math.prod(first) // max(outputs[0][0], 1)) if outputs else 0
    if ("MatMul" in op or "Gemm" in op or "Attention" in op) and first:
        return 2 * elements * max(first[-1], 1)
    if op in ("LSTM", "GRU", "RNN") and first and second and len(inputs) > 2 and inputs[2]:
        steps = math.prod(first[:2])
        return 2 * steps * (math.prod(second) + math.prod(inputs[2]))
    return elements


def _bytes(scope: Scope, name: str) -> int | None:
    shape = scope.shapes.get(name)
    if shape is None:
        return None
    return math.ceil(math.prod(shape) * width_of(scope.types.get(name, 0)))


@cache
def width_of(kind: int) -> float:
    """Bytes per element of an ONNX element type; 1 for strings."""
    import onnx

    name = onnx.TensorProto.DataType.Name(kind)
    if name in ("STRING", "UNDEFINED"):
        return 1.0
    if name in ("INT4", "UINT4", "FLOAT4E2M1"):
        return 0.5
    if name in ("INT2", "UINT2"):
        return 0.25
    return float(onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize)
