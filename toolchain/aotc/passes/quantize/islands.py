"""Which nodes are worth their boundaries: conversions of values between float32 and integers.

Every node is quantized or not.  A value that integers read and float32 nodes make is quantized
once, a value that integers make and float32 nodes read is dequantized once; products write either
at no cost.  A set of nodes is sought whose gain, less the cost of its boundaries, no change of one
node or of one connected region improves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from aotc.partitioning.compute import Sizes
from aotc.passes.quantize.operators import CARRIERS
from aotc.passes.quantize.static_form import FLOAT_OUTPUTS
from aotc.records import record

if TYPE_CHECKING:
    import onnx

# Rough rates of one core, to weigh with: operations in float32, how much quicker integers are on
# a CPU without VNNI, and bytes of values that are converted or moved.
_FLOPS: Final = 5e10
_GAIN: Final = 0.4
_BYTES: Final = 1e10
_CALL_SECONDS: Final = 2e-6
# Kernels that follow a product without a pass of their own, or do less work on smaller values.
_QUICKER: Final = frozenset({"AveragePool", "Clip", "GlobalAveragePool", "MaxPool", "Relu"})
_MAX_ROUNDS: Final = 64
# Bytes that are assumed of a value of unknown size.
_UNKNOWN_BYTES: Final = 1 << 16
_UNKNOWN_SECONDS: Final = 1e-4


@record(kw_only=False)
class Worth:
    """The nodes that are quantized, and how many values are converted, by name."""

    nodes: frozenset[str]
    boundaries: int


class Weighing:
    """The main graph of a model, with the cost of everything at one size."""

    def __init__(self, model: onnx.ModelProto, sizes: Sizes, activations: Collection[str]) -> None:
        """`activations` are the values of type float32 that are no constants."""
        graph = model.graph
        self._nodes = {node.name: node for node in graph.node}
        self._activations = frozenset(activations)
        self._sizes = sizes
        self._maker = {name: node.name for node in graph.node for name in node.output if name}
        self._readers: dict[str, list[str]] = {}
        for node in graph.node:
            for name in dict.fromkeys(node.input):
                self._readers.setdefault(name, []).append(node.name)
        self._outputs = {value.name for value in graph.output}

    def worth(self, candidates: Sequence[str]) -> Worth:
        """The best of `candidates`, all of which are looked at as quantized first."""
        taken = set(candidates)
        for _ in range(_MAX_ROUNDS):
            changed = self._improve_nodes(candidates, taken)
            changed |= self._drop_regions(candidates, taken)
            if not changed:
                break
        values = {value for name in taken for value in self._values(name)}
        return Worth(frozenset(taken), sum(self._crosses(value, taken) for value in values))

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
        node = self._nodes[name]
        found = dict.fromkeys((*node.input, *node.output))
        return [value for value in found if value in self._activations]

    def _neighbours(self, name: str) -> list[str]:
        found: dict[str, None] = {}
        for value in self._values(name):
            if value in self._maker:
                found[self._maker[value]] = None
            found.update(dict.fromkeys(self._readers.get(value, ())))
        return [near for near in found if near != name]

    def _crosses(self, value: str, taken: Collection[str]) -> bool:
        """Whether a value is converted."""
        readers = self._readers.get(value, ())
        integers = any(reader in taken for reader in readers)
        floats = value in self._outputs or any(reader not in taken for reader in readers)
        maker = self._maker.get(value)
        if maker is None or maker not in taken:
            return integers
        if self._nodes[maker].op_type in FLOAT_OUTPUTS:
            return integers and floats
        return floats

    def _cost(self, value: str, taken: Collection[str]) -> float:
        """Seconds that are spent on converting a value."""
        if not self._crosses(value, taken):
            return 0.0
        size = self._sizes.values.get(value, _UNKNOWN_BYTES)
        return 1.25 * size / _BYTES + _CALL_SECONDS

    def _gain(self, name: str) -> float:
        """Seconds that a node takes less in integers."""
        node = self._nodes[name]
        compute = self._sizes.nodes.get(name)
        if node.op_type in CARRIERS:
            if node.op_type not in _QUICKER:
                return 0.0
            size = self._sizes.values.get(node.output[0], _UNKNOWN_BYTES)
            return 0.5 * size / _BYTES
        if compute is None or not compute.known:
            return _UNKNOWN_SECONDS
        return _GAIN * compute.flops / _FLOPS
