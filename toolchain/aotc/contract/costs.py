"""What a model costs at each size: measured, and kept as `aotc.costs/1`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Literal

from aotc.contract.parsing import Bounds, Problem, record

Seconds = Annotated[float, Bounds(0, 1e6)]


@record
class CostTable:
    """Seconds of one run at every combination of `sizes`, row-major in the order of `dims`.

    `static` are runs of a graph with these sizes written in, `dynamic` runs of the graph that takes
    all sizes; empty where a backend has none.
    """

    schema: Literal["aotc.costs/1"] = "aotc.costs/1"
    dims: Annotated[tuple[str, ...], Bounds(1, 2)]
    sizes: Annotated[Mapping[str, tuple[Annotated[int, Bounds(0)], ...]], "measured, rising"]
    static: tuple[Seconds, ...]
    dynamic: tuple[Seconds, ...] = ()
    noise: Annotated[float, Bounds(0, 1), "by how much a median may be off, as a share"] = 0.0
    backend: Annotated[str, "what ran, with versions"] = ""
    source: Annotated[str, "sha256 of the model; empty where it is not known"] = ""
    others: Annotated[Mapping[str, int], "sizes of the other dims"] = field(default_factory=dict)

    def problems(self) -> list[Problem]:
        """What the types cannot say."""
        found = []
        combinations = 1
        for dim in self.dims:
            sizes = self.sizes.get(dim, ())
            combinations *= len(sizes)
            if not sizes or list(sizes) != sorted(set(sizes)):
                found.append(Problem(f"sizes.{dim}", "are missing, or not rising"))
        if set(self.sizes) != set(self.dims):
            found.append(Problem("sizes", "are not of the dims"))
        if not found and len(self.static) != combinations:
            text = f"{len(self.static)} figures for {combinations} combinations"
            found.append(Problem("static", text))
        if not found and self.dynamic and len(self.dynamic) != combinations:
            text = f"{len(self.dynamic)} figures for {combinations} combinations"
            found.append(Problem("dynamic", text))
        return found
