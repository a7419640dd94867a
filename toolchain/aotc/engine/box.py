"""The box of sizes: its corners must run, or probed bounds give way until they do."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from aotc.contract.manifest import Finding
from aotc.contract.shapes import Dim, DimRange, Domain, Relation
from aotc.engine.trials import Stop, Trials
from aotc.errors import AotcError

# Dims of which all corners run, 2 to the power of their number; of more, one dim at a time.
_FREE_CORNERS = 3
# How often a bound is halved for the sake of one mixed corner.
_HALVINGS = 3


class Exhausted(Exception):
    """The search may not go on."""


@dataclass(slots=True)
class Box:
    """Bounds by dim, and what follows from them; `leading` dims give way first."""

    trials: Trials
    dims: dict[str, Dim]
    relations: Sequence[Relation]
    leading: Collection[str]
    findings: list[Finding] = field(default_factory=list)

    def domain(self) -> Domain:
        """The box, each dim with its optimal size."""
        return Domain(
            dims={name: with_opt(name, dim, self.leading) for name, dim in self.dims.items()},
            relations=(*self.relations, *self.trials.relations),
        )

    def fit(self) -> Domain:
        """Halve probed bounds until the corners run.

        A mixed corner (some dims at their smallest, others at their largest) that never does is
        told as AOTC-S013.  Raises `Exhausted`, and AOTC-S005 where stated sizes do not run.
        """
        self._fit_largest()
        for which in _ENDS:
            sizes = self.domain().corner(which)
            outcome = self.trials.run(sizes)
            if not outcome.ok and self.trials.stop:
                raise Exhausted
            if not outcome.ok:
                raise does_not_run(f"the {which} sizes do not run", sizes, outcome.error)
        self.findings.clear()
        before = dict(self.dims)
        for ends in self._mixed():
            self._fit_mixed(ends)
            if self.dims != before:
                # Another box has other corners.
                return self.fit()
        return self.domain()

    def _fit_largest(self) -> None:
        while True:
            corner = self.domain().corner("max")
            stop = self.trials.too_much(corner)
            if stop and self._halve(self.dims, stop):
                continue
            # Limits bound the search, and neither what is stated nor the least there is.
            outcome = self.trials.run(corner)
            if outcome.ok:
                return
            if self.trials.stop:
                raise Exhausted
            if not self._halve(self.dims, "error"):
                raise does_not_run("the largest stated sizes do not run", corner, outcome.error)

    def _halve(self, dims: Collection[str], stop: Stop) -> bool:
        """Halve the widest probed one of `dims`; False where none can shrink."""
        shrinkable = [
            name
            for name in self.dims
            if name in dims
            and self.dims[name].origin == "probed"
            and self.dims[name].max > self.dims[name].min
        ]
        if not shrinkable:
            return False
        first = [name for name in shrinkable if name in self.leading] or shrinkable
        widest = max(first, key=lambda name: self.dims[name].max)
        dim = self.dims[widest]
        half = max(dim.min, dim.max // 2 // dim.multiple_of * dim.multiple_of)
        self.dims[widest] = replace(
            dim,
            max=half,
            tested=tuple(sorted({size for size in dim.tested if size <= half} | {half})),
            gaps=tuple(size for size in dim.gaps if size <= half),
            stopped_by=stop,
        )
        return True

    def _mixed(self) -> Iterator[tuple[str, ...]]:
        """Which dims are at their largest size, all others being at their smallest."""
        free = [name for name, dim in self.dims.items() if dim.max > dim.min]
        if len(free) <= _FREE_CORNERS:
            for count in range(1, len(free)):
                yield from itertools.combinations(free, count)
        else:
            for name in free:
                yield (name,)
                yield tuple(other for other in free if other != name)

    def _fit_mixed(self, ends: Sequence[str]) -> None:
        before = dict(self.dims)
        for halvings in range(_HALVINGS + 1):
            sizes = self._corner(ends)
            outcome = self.trials.run(sizes)
            if outcome.ok:
                return
            if self.trials.stop:
                # What is proven so far stands; nothing was seen to fail.
                self.dims = before
                return
            if halvings == _HALVINGS or not self._halve(ends, "error"):
                break
        self.dims = before
        sizes = self._corner(ends)
        error = self.trials.run(sizes).error
        if all(dim.origin == "stated" for dim in self.dims.values() if dim.max > dim.min):
            raise does_not_run("stated sizes do not run together", sizes, error)
        text = ", ".join(f"{name}={size}" for name, size in sizes.items())
        self.findings.append(
            Finding(code="AOTC-S013", what=f"these sizes do not run together: {error}", where=text)
        )

    def _corner(self, ends: Collection[str]) -> dict[str, int]:
        domain = self.domain()
        sizes = {name: dim.max if name in ends else dim.min for name, dim in domain.dims.items()}
        return domain.complete(sizes)


_ENDS: tuple[Literal["min", "opt"], ...] = ("min", "opt")


def does_not_run(what: str, sizes: Mapping[str, int], error: str) -> AotcError:
    """AOTC-S005 at `sizes`."""
    text = ", ".join(f"{dim}={size}" for dim, size in sizes.items())
    return AotcError("AOTC-S005", f"{what}: {text}", found=error)


def with_opt(name: str, dim: Dim, leading: Collection[str]) -> Dim:
    """A batch is optimised for its smallest size; other dims for the geometric mean."""
    if dim.origin == "stated":
        return dim
    spec = DimRange(min=dim.min, max=dim.max, multiple_of=dim.multiple_of)
    opt = max(dim.min, min(1, dim.max)) if name in leading else spec.optimal()
    if dim.gaps:
        opt = min(dim.tested, key=lambda size: (abs(size - opt), size))
    return replace(dim, opt=opt, tested=tuple(sorted({*dim.tested, opt})))
