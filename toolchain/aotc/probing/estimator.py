"""Estimates the cost of a run at any sizes from a few measured runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from aotc.contract.manifest.interface import Value
from aotc.engine.values import NARROW_BITS, numpy_dtype
from aotc.probing.inputs.generated_fixtures import shape_of
from aotc.probing.run_cost import Growth, RunCost

# A Python string and the reference to it.
_TEXT_BYTES: Final = 64


class Estimator:
    """Input bytes, activation bytes and flops at any sizes, from a few measured runs.

    `points` are the base, then sizes in which one free dim (with the dims derived from it) is
    larger.  Growth in several dims at once is estimated as the product of the growths in each.
    """

    def __init__(
        self,
        inputs: Sequence[Value],
        points: Sequence[Mapping[str, int]],
        costs: Sequence[RunCost | None],
    ) -> None:
        """`costs` are those measured at `points`; None if the run failed."""
        self._inputs = inputs
        base, *larger = points
        self._first = costs[0] or RunCost(1, 1.0)
        seen: dict[str, list[tuple[int, RunCost]]] = {}
        for sizes, cost in zip(larger, costs[1:], strict=True):
            # A dim derived from several grows with each of them.
            grown = [name for name in base if sizes[name] != base[name]]
            dim = min(grown, key=lambda name: sum(at[name] != base[name] for at in larger))
            if cost is not None:
                seen.setdefault(dim, [(base[dim], self._first)]).append((sizes[dim], cost))
        self._activations = {
            dim: Growth(
                tuple(
                    (size, cost.activation_bytes / max(self._first.activation_bytes, 1))
                    for size, cost in points
                )
            )
            for dim, points in seen.items()
        }
        self._flops = {
            dim: Growth(
                tuple((size, cost.flops / max(self._first.flops, 1.0)) for size, cost in points)
            )
            for dim, points in seen.items()
        }

    def __call__(self, sizes: Mapping[str, int]) -> tuple[int, int, float]:
        """Input bytes, activation bytes and floating-point operations at `sizes`."""
        activations = float(self._first.activation_bytes)
        flops = self._first.flops
        for dim, growth in self._activations.items():
            activations *= growth.at(sizes[dim])
            flops *= self._flops[dim].at(sizes[dim])
        return input_bytes(self._inputs, sizes), int(activations), flops


def input_bytes(inputs: Sequence[Value], sizes: Mapping[str, int]) -> int:
    """Bytes of all tensors among `inputs` at `sizes`, computed without creating them."""
    total = 0
    for value in inputs:
        bits = NARROW_BITS.get(value.dtype)
        if value.dtype == "string":
            width = _TEXT_BYTES
        else:
            width = 1 if bits else numpy_dtype(value.dtype).itemsize
        total += width * math.prod(shape_of(value, sizes))
    return total
