"""Which nodes are worth their boundaries: conversions of values between float32 and integers.

Every node is quantized or not.  A value that integers read and float32 nodes make is quantized
once, a value that integers make and float32 nodes read is dequantized once; products write either
at no cost.  A set of nodes is sought whose gain, less the cost of its boundaries, no change of one
node or of one connected region improves.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aotc.partitioning.compute import flops_of
from aotc.passes.quantize.observed import Observed
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
_FLOAT_BYTES: Final = 4


@record(kw_only=False)
class Worth:
    """The nodes that are quantized, and how many values are converted, by name."""

    nodes: frozenset[str]
    boundaries: int


class Weighing:
    """The main graph of a model, and what was observed of its activations, by name."""

    def __init__(self, model: onnx.ModelProto, observed: Mapping[str, Observed]) -> None:
        graph = model.graph
        self._nodes = {node.name: node for node in graph.node}
        self._observed = observed
        self._weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
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
        return [value for value in found if value in self._observed]

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
        return 1.25 * self._bytes(value) / _BYTES + _CALL_SECONDS

    def _gain(self, name: str) -> float:
        """Seconds that a node takes less in integers."""
        node = self._nodes[name]
        output = node.output[0]
        if node.op_type in CARRIERS:
            return 0.5 * self._bytes(output) / _BYTES if node.op_type in _QUICKER else 0.0
        shapes = [self._observed[node.input[0]].shape, self._weights[node.input[1]]]
        flops = flops_of(node.op_type, shapes, [self._observed[output].shape])
        return _GAIN * flops / _FLOPS

    def _bytes(self, value: str) -> int:
        return _FLOAT_BYTES * math.prod(self._observed[value].shape)
