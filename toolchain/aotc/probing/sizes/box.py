"""The box of sizes: its corners must run, or probed bounds shrink until they do."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

from aotc.contract.finding import Finding
from aotc.contract.shapes.domain import Dim, Domain, Relation, Stop
from aotc.errors import AotcError
from aotc.probing.sizes.dim_hints import DimHints
from aotc.probing.sizes.trials import Trials
from aotc.probing.sizes.usual_sizes import optimum
from aotc.records import field, record, replace

# Up to this many dims all corners are run, 2 to the power of their number; beyond, one at a time.
_MAX_DIMS_OF_ALL_CORNERS = 3
# How often a bound is halved because of one mixed corner.
_MAX_HALVINGS = 3
# How many failing corners are reported with their sizes.
_MAX_REPORTED_CORNERS = 12


class Exhausted(Exception):
    """No more runs are allowed."""


@record(frozen=False, kw_only=False)
class Box:
    """Bounds by dim, with the relations between dims.

    `anchor` are sizes that run; probed bounds shrink towards them.  Batches (see `hints`) shrink
    first where runs cost too much, and last where they fail.
    """

    trials: Trials
    dims: dict[str, Dim]
    relations: Sequence[Relation]
    hints: DimHints
    anchor: Mapping[str, int]
    findings: list[Finding] = field(default_factory=list)
    _raised_minimums: dict[str, int] = field(default_factory=dict)
    """Minimums that ran alone but not together with others."""
    _anchor_is_optimal: bool = False
    """Whether the anchor's sizes serve as the optimal ones."""

    def domain(self) -> Domain:
        """The box as a domain, each dim with its optimal size."""
        return Domain(
            dims={name: self._with_opt(name, dim) for name, dim in self.dims.items()},
            relations=(*self.relations, *self.trials.relations),
        )

    def fit(self) -> Domain:
        """Shrink probed bounds until the corners run.

        A mixed corner (some dims at their minimum, others at their maximum) that never runs is
        reported as AOTC-S013, a minimum that had to be raised as AOTC-S027.  Raises `Exhausted`,
        and AOTC-S005 if stated sizes do not run.
        """
        while not self._all_corners_run():
            # A smaller box has other corners.
            continue
        more = len(self.findings) - _MAX_REPORTED_CORNERS
        if more > 0:
            what = f"{more} more corners do not run together"
            self.findings[_MAX_REPORTED_CORNERS:] = [Finding(code="AOTC-S013", what=what)]
        self.findings += [
            Finding(code="AOTC-S027", what=f"{was} runs, and not with others", where=name)
            for name, was in self._raised_minimums.items()
        ]
        return self.domain()

    def _all_corners_run(self) -> bool:
        """Whether all corners were tried without shrinking a bound for a mixed one."""
        self.fit_largest()
        self._fit_smallest()
        self._fit_optimal()
        self.findings.clear()
        before = dict(self.dims)
        for ends in self._mixed_corners():
            self._fit_mixed(ends)
            if self.dims != before:
                return False
        return True

    def fit_largest(self) -> None:
        """Lower the maximums until they run together; raises as `fit` does."""
        while True:
            corner = self.domain().corner("max")
            stop = self.trials.exceeded_limit(corner)
            if stop and self._halve(self.dims, stop):
                continue
            # Limits bound the search, but neither stated sizes nor the smallest possible box.
            outcome = self.trials.run(corner)
            if outcome.ok:
                return
            if self.trials.stop:
                raise Exhausted
            if not self._halve(self.dims, "together"):
                raise not_running("the largest stated sizes do not run", corner, outcome.error)

    def _fit_smallest(self) -> None:
        """Raise the minimums until they run together."""
        while True:
            corner = self.domain().corner("min")
            outcome = self.trials.run(corner)
            if outcome.ok:
                return
            if self.trials.stop:
                raise Exhausted
            low = [
                n for n, d in self.dims.items() if _may_shrink(d) and d.min < self._anchor_size(n)
            ]
            if not low:
                raise not_running("the smallest sizes do not run", corner, outcome.error)
            # The smallest minimum is the likeliest to be too small.
            name = min(low, key=lambda dim: self.dims[dim].min)
            self._raise_minimum(name)

    def _raise_minimum(self, name: str) -> None:
        dim, anchor_size = self.dims[name], self._anchor_size(name)
        self._raised_minimums.setdefault(name, dim.min)
        step = dim.multiple_of
        size = min(anchor_size, max(dim.min + step, dim.min * 2))
        tested = {anchor_size, size, *(s for s in dim.tested if s >= size)}
        gaps = tuple(gap for gap in dim.gaps if gap > size)
        self.dims[name] = replace(dim, min=size, tested=tuple(sorted(tested)), gaps=gaps)

    def _fit_optimal(self) -> None:
        """Use the anchor's sizes as optimal ones if the usual ones do not run together."""
        corner = self.domain().corner("opt")
        outcome = self.trials.run(corner)
        if outcome.ok:
            return
        if self.trials.stop:
            raise Exhausted
        self._anchor_is_optimal = True
        corner = self.domain().corner("opt")
        outcome = self.trials.run(corner)
        if not outcome.ok:
            raise not_running("the opt sizes do not run", corner, outcome.error)

    def _anchor_size(self, name: str) -> int:
        """The anchor's size of a dim, within its bounds."""
        dim = self.dims[name]
        return min(max(self.anchor[name], dim.min), dim.max)

    def _with_opt(self, name: str, dim: Dim) -> Dim:
        if dim.origin == "stated":
            return dim
        kind = self.hints.kind(name)
        opt = (
            self._anchor_size(name)
            if self._anchor_is_optimal
            else optimum(kind, dim, self._anchor_size(name))
        )
        return replace(dim, opt=opt, tested=tuple(sorted({*dim.tested, opt})))

    def _halve(self, dims: Collection[str], stop: Stop) -> bool:
        """Halve the widest probed one of `dims`; False if none can shrink."""
        shrinkable = [
            name
            for name, dim in self.dims.items()
            if name in dims and _may_shrink(dim) and dim.max > self._anchor_size(name)
        ]
        if not shrinkable:
            return False
        # The batch multiplies every cost, but it is rarely why a run fails.
        batches = [name for name in shrinkable if name in self.hints.leading]
        others = [name for name in shrinkable if name not in batches]
        first = (others if stop == "together" else batches) or shrinkable
        widest = max(first, key=lambda name: self.dims[name].max)
        dim = self.dims[widest]
        half = max(self._anchor_size(widest), dim.max // 2 // dim.multiple_of * dim.multiple_of)
        self.dims[widest] = replace(
            dim,
            max=half,
            tested=tuple(sorted({size for size in dim.tested if size <= half} | {half})),
            gaps=tuple(size for size in dim.gaps if size <= half),
            stopped_by=stop,
        )
        return True

    def _mixed_corners(self) -> Iterator[tuple[str, ...]]:
        """For each mixed corner, the dims at their maximum; all others are at their minimum."""
        free = [name for name, dim in self.dims.items() if dim.max > dim.min]
        if len(free) <= _MAX_DIMS_OF_ALL_CORNERS:
            for count in range(1, len(free)):
                yield from itertools.combinations(free, count)
        else:
            for name in free:
                yield (name,)
                yield tuple(other for other in free if other != name)

    def _fit_mixed(self, ends: Sequence[str]) -> None:
        before = dict(self.dims)
        for halvings in range(_MAX_HALVINGS + 1):
            sizes = self._corner(ends)
            outcome = self.trials.run(sizes)
            if outcome.ok:
                return
            if self.trials.stop:
                # What is proven so far stays proven: this corner was not seen to fail.
                self.dims = before
                return
            if halvings == _MAX_HALVINGS or not self._halve(ends, "together"):
                break
        self.dims = before
        sizes = self._corner(ends)
        error = self.trials.run(sizes).error
        if all(dim.origin == "stated" for dim in self.dims.values() if dim.max > dim.min):
            raise not_running("stated sizes do not run together", sizes, error)
        text = ", ".join(f"{name}={size}" for name, size in sizes.items())
        self.findings.append(
            Finding(code="AOTC-S013", what=f"these sizes do not run together: {error}", where=text)
        )

    def _corner(self, ends: Collection[str]) -> dict[str, int]:
        domain = self.domain()
        sizes = {name: dim.max if name in ends else dim.min for name, dim in domain.dims.items()}
        return domain.complete(sizes)


def _may_shrink(dim: Dim) -> bool:
    """Whether the bounds of `dim` may change: they were probed, not stated."""
    return dim.origin == "probed"


def not_running(what: str, sizes: Mapping[str, int], error: str) -> AotcError:
    """AOTC-S005 at `sizes`."""
    text = ", ".join(f"{dim}={size}" for dim, size in sizes.items())
    return AotcError("AOTC-S005", f"{what}: {text}", found=error)
