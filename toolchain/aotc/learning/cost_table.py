"""The cost of a model at each size: measured, and stored as `aotc.costs/1`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds, Problem
from aotc.contract.profile import Seconds
from aotc.records import field, record


@record
class CostTable:
    """Seconds of one run at every combination of sizes, row-major in the order of `dims`.

    `static` are runs of graphs with the combinations of `sizes` fixed.  `dynamic` are runs of the
    graph for all sizes, at `dynamic_sizes`, which may lie between the others: that shows whether a
    backend that is fast at multiples of 16 is slow elsewhere.  Empty if not measured.  The first
    run at a size is not in them, but in `new_size`, the median over sizes of what it takes more.
    """

    schema: Literal["aotc.costs/1"] = "aotc.costs/1"
    dims: Annotated[tuple[str, ...], Bounds(1, 2)]
    sizes: Annotated[Mapping[str, tuple[Annotated[int, Bounds(1)], ...]], "measured, rising"]
    static: tuple[Seconds, ...]
    dynamic_sizes: Annotated[
        Mapping[str, tuple[Annotated[int, Bounds(0)], ...]], "measured, rising; none: as `sizes`"
    ] = field(default_factory=dict)
    dynamic: tuple[Seconds, ...] = ()
    new_size: Annotated[
        Seconds, "how much longer the first call of a size takes, where sizes are not fixed"
    ] = 0.0
    noise: Annotated[float, Bounds(0, 1), "by how much a figure may be off, as a share"] = 0.0
    drift: Annotated[
        float, Bounds(0, 1), "by how much sessions of one size differ: other work on the machine"
    ] = 0.0
    backend: Annotated[str, "what ran, with versions"] = ""
    source: Annotated[str, "sha256 of the model; empty if unknown"] = ""
    others: Annotated[Mapping[str, int], "sizes of the other dims"] = field(default_factory=dict)

    def problems(self) -> list[Problem]:
        """Sizes and figures that do not match each other."""
        found = self._table_problems("sizes", self.sizes, "static", self.static)
        if self.dynamic:
            found += self._table_problems(
                "dynamic_sizes", self.dynamic_sizes_or_all(), "dynamic", self.dynamic
            )
        return found

    def dynamic_sizes_or_all(self) -> Mapping[str, tuple[int, ...]]:
        """The sizes at which `dynamic` was measured."""
        return self.dynamic_sizes or self.sizes

    def _table_problems(
        self,
        field_name: str,
        sizes: Mapping[str, tuple[int, ...]],
        figures_name: str,
        figures: tuple[float, ...],
    ) -> list[Problem]:
        if set(sizes) != set(self.dims):
            return [Problem(field_name, "do not match the dims")]
        for dim, listed in sizes.items():
            if not listed or list(listed) != sorted(set(listed)):
                return [Problem(f"{field_name}.{dim}", "are missing, or not rising")]
        combinations = math.prod(len(listed) for listed in sizes.values())
        if len(figures) != combinations:
            text = f"{len(figures)} figures for {combinations} combinations"
            return [Problem(figures_name, text)]
        return []
