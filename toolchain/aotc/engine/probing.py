"""Find the sizes at which a model runs, when nobody states them.

Declared free dims lie: some work at one size only, some must be equal under different names,
one may be the sum of two others, some must be multiples of 32.  The prober asks a `trial` (one
run of the original model at given sizes) and proves a box of sizes with relations:

1. a base: some combination of sizes that runs;
2. moves: by what step each dim can move, alone or together with which others;
3. relations: a dim that only moves with others follows from them;
4. bounds: downwards to 1 (0 where no output is empty then), upwards by doubling, then bisection;
5. the box: the corner of all upper bounds must run too, or bounds are halved until it does.

Everything is counted, not timed, so that two builds find the same box.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from aotc.contract.profile import ProbeLimits
from aotc.contract.shapes import Dim, DimRange, Domain, Relation
from aotc.engine.candidates import candidates
from aotc.engine.gaps import without_gaps
from aotc.engine.relations import Move, relations_of
from aotc.errors import AotcError

_STEPS = (2, 3, 4, 5, 6, 7, 8, 16, 32, 64)

Stop = Literal["", "error", "size", "work", "bytes", "count", "time"]


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of one run; `empty` where some output has no element."""

    ok: bool
    error: str = ""
    empty: bool = False


class Cost(Protocol):
    """Estimates what one run costs."""

    def __call__(self, sizes: Mapping[str, int]) -> tuple[int, int, float]:
        """Input bytes, activation bytes and floating-point operations at `sizes`."""
        ...


@dataclass(slots=True)
class Prober:
    """Search for the domain of `dims`.

    `leading` names dims that only ever stand first (batches): they give way first where the box is
    too costly, and their optimal size is the smallest.  `stated` are the profile's ranges.
    """

    dims: Sequence[str]
    leading: frozenset[str]
    stated: Mapping[str, DimRange]
    limits: ProbeLimits
    trial: Callable[[Mapping[str, int]], Trial]
    late: Callable[[], bool]
    cost: Callable[[Sequence[Mapping[str, int]]], Cost]
    """Called once, with the base and two larger sizes of each free dim."""

    runs: int = 0
    _known: dict[tuple[int, ...], Trial] = field(default_factory=dict)
    _error: str = ""
    _estimate: Cost | None = None
    _stop: Stop = ""
    _start: dict[str, int] = field(default_factory=dict)

    def search(self, seeds: Sequence[Mapping[str, int]] = ()) -> Domain:
        """The proven domain.  `seeds` are sizes known to make sense, such as a user's fixtures.

        Raises AOTC-S001 (nothing runs) and AOTC-S005 (a stated size does not run).
        """
        base = self._start = self._base(seeds)
        free = [dim for dim in self.dims if dim not in self.stated]
        fixed = {dim for dim, spec in self.stated.items() if spec.fixed()}
        movable = [dim for dim in self.dims if dim not in fixed]
        search = movable if free or len(movable) > 1 else []
        moves = {dim: self._move(dim, base, search) for dim in search}
        relations = relations_of(base, moves, self.stated)
        self._check_stated(relations)
        derived = {relation.dim for relation in relations}
        if free:
            self._estimate = self.cost(self._points(base, moves, relations))
        box = {
            dim: self._bounds(dim, base, moves[dim], relations)
            for dim in free
            if dim not in derived
        }
        box |= {dim: _stated(spec) for dim, spec in self.stated.items() if dim not in derived}
        order = {dim: box[dim] for dim in self.dims if dim in box}
        return self._fit(order, relations)

    def _points(
        self,
        base: Mapping[str, int],
        moves: Mapping[str, Move | None],
        relations: Sequence[Relation],
    ) -> list[dict[str, int]]:
        derived = {relation.dim for relation in relations}
        points = [dict(base)]
        for dim, move in moves.items():
            if move is not None and dim not in derived:
                for times in (1, 2):
                    grown = {**base, dim: base[dim] + times * max(move.step, base[dim])}
                    points.append(_follow(grown, relations))
        return points

    def _check_stated(self, relations: Sequence[Relation]) -> None:
        """Equal dims must be bounded alike; raises AOTC-S011."""
        for relation in relations:
            spec = self.stated.get(relation.dim)
            terms = [self.stated.get(term) for term in relation.terms]
            if spec is None or any(term is None for term in terms):
                continue
            low = sum(term.min for term in terms if term) + relation.constant
            high = sum(term.max for term in terms if term) + relation.constant
            if (spec.min, spec.max) != (low, high):
                raise AotcError(
                    "AOTC-S011",
                    f"the model runs only where {relation}",
                    where=relation.dim,
                    expected=f"{low}..{high}",
                    found=f"{spec.min}..{spec.max}",
                )

    # -- 1. base
    def _base(self, seeds: Sequence[Mapping[str, int]]) -> dict[str, int]:
        for sizes in candidates(self.dims, self.leading, self.stated, seeds):
            if self._run(sizes).ok:
                return sizes
            if self._exhausted():
                break
        stated = f"; stated: {', '.join(self.stated)}" if self.stated else ""
        raise AotcError(
            "AOTC-S001" if not self.stated else "AOTC-S005",
            f"no working sizes for {', '.join(self.dims) or 'the static inputs'} in "
            f"{self.runs} runs{stated}",
            found=self._error,
        )

    # -- 2. moves
    def _move(self, dim: str, base: Mapping[str, int], free: Sequence[str]) -> Move | None:
        others = [other for other in free if other != dim]
        # Downwards as well, as the base may be the largest size.
        for way in (1, -1):
            if self._moves(base, (dim,), way):
                return Move((dim,), 1)
            for other in others:
                if self._moves(base, (dim, other), way):
                    return Move((dim, other), 1)
            if len(others) > 1 and self._moves(base, (dim, *others), way):
                return Move(self._fewest(base, dim, others, way), 1)
        for step, way in itertools.product(_STEPS, (1, -1)):
            if self._moves(base, (dim,), step * way):
                return Move((dim,), step)
            for other in others if dim not in self.leading else ():
                if base[other] == base[dim] and self._moves(base, (dim, other), step * way):
                    return Move((dim, other), step)
        return None

    def _fewest(
        self, base: Mapping[str, int], dim: str, others: Sequence[str], way: int
    ) -> tuple[str, ...]:
        """Of the dims that can move together, those that `dim` cannot move without."""
        together = [dim, *others]
        for other in others:
            if self._moves(base, tuple(d for d in together if d != other), way):
                together.remove(other)
        return tuple(together)

    def _moves(self, base: Mapping[str, int], dims: Sequence[str], shift: int) -> bool:
        sizes = {**base, **{dim: base[dim] + shift for dim in dims}}
        return min(sizes.values()) > 0 and self._run(sizes).ok

    # -- 4. bounds
    def _bounds(
        self, dim: str, base: Mapping[str, int], move: Move | None, relations: Sequence[Relation]
    ) -> Dim:
        if move is None:
            size = base[dim]
            return Dim(min=size, max=size, opt=size, tested=(size,), stopped_by="error")
        step = move.step
        tested = {base[dim]}

        def works(size: int) -> bool:
            sizes = _follow({**base, dim: size}, relations)
            if min(sizes.values()) < 0:
                return False
            outcome = self._run(sizes)
            ok = outcome.ok and (size > 0 or not outcome.empty)
            if ok:
                tested.add(size)
            return ok

        low = self._lowest(base[dim], step, works)
        high, stop = self._highest(dim, base, step, relations, works)
        grid = step if low % step == 0 and high % step == 0 else 1
        gaps: tuple[int, ...] = ()
        if grid == 1:
            low, high, grid, gaps = without_gaps(low, high, works)
        return Dim(
            min=low,
            max=high,
            opt=low,
            multiple_of=grid,
            tested=tuple(sorted(tested)),
            gaps=gaps,
            stopped_by=stop,
        )

    def _lowest(self, base: int, step: int, works: Callable[[int], bool]) -> int:
        first = base % step or step
        if works(first):
            return 0 if first == step and works(0) else first
        low, bad = base, first
        while low - bad > step:
            middle = bad + (low - bad) // 2 // step * step
            if works(middle):
                low = middle
            else:
                bad = middle
        return low

    def _highest(
        self,
        dim: str,
        base: Mapping[str, int],
        step: int,
        relations: Sequence[Relation],
        works: Callable[[int], bool],
    ) -> tuple[int, Stop]:
        good, grow, stop = base[dim], step, ""
        bad = 0
        while True:
            size = good + grow
            if good % (2 * step) == 0 and good >= step:
                size = good * 2
            if size > self.limits.max_size:
                size = self.limits.max_size // step * step if base[dim] % step == 0 else good
                if size <= good:
                    return good, "size"
            stop = self._too_much(_follow({**base, dim: size}, relations))
            if stop:
                return good, stop
            if not works(size):
                if self._exhausted():
                    return good, self._stop
                bad = size
                break
            good, grow = size, max(grow, step)
        while bad - good > step:
            middle = good + (bad - good) // 2 // step * step
            if works(middle):
                good = middle
            else:
                bad = middle
        return good, "error"

    # -- 5. the box
    def _fit(self, box: dict[str, Dim], relations: tuple[Relation, ...]) -> Domain:
        while True:
            domain = Domain(
                dims={d: _with_opt(d, dim, self.leading) for d, dim in box.items()},
                relations=relations,
            )
            corner = domain.corner("max")
            stop = self._too_much(corner) if self._estimate is not None else ""
            if not stop:
                outcome = self._run(corner)
                if outcome.ok:
                    break
                if self._stop:
                    return self._point(box, relations)
                stop = "error"
            shrinkable = [
                d for d, dim in box.items() if dim.origin == "probed" and dim.max > dim.min
            ]
            if not shrinkable:
                raise AotcError(
                    "AOTC-S005",
                    f"the largest stated sizes do not run: {_text(corner)}",
                    found=outcome.error if stop == "error" else f"limit of {stop}",
                )
            first = [d for d in shrinkable if d in self.leading] or shrinkable
            widest = max(first, key=lambda d: box[d].max)
            dim = box[widest]
            half = max(dim.min, dim.max // 2 // dim.multiple_of * dim.multiple_of)
            box[widest] = replace(
                dim,
                max=half,
                tested=tuple(sorted({size for size in dim.tested if size <= half} | {half})),
                gaps=tuple(size for size in dim.gaps if size <= half),
                stopped_by=stop,
            )
        corners: tuple[Literal["min", "opt"], ...] = ("min", "opt")
        for which in corners:
            sizes = domain.corner(which)
            outcome = self._run(sizes)
            if not outcome.ok and self._stop:
                return self._point(box, relations)
            if not outcome.ok:
                raise AotcError(
                    "AOTC-S005",
                    f"the {which} sizes do not run: {_text(sizes)}",
                    found=outcome.error,
                )
        return domain

    def _point(self, box: Mapping[str, Dim], relations: tuple[Relation, ...]) -> Domain:
        """What is left where the search may not go on: the base alone, and the stated ranges."""
        dims = {}
        for name, dim in box.items():
            size = self._start[name]
            alone = Dim(min=size, max=size, opt=size, tested=(size,), stopped_by=self._stop)
            dims[name] = dim if dim.origin == "stated" else alone
        return Domain(dims=dims, relations=relations)

    # -- running
    def _run(self, sizes: Mapping[str, int]) -> Trial:
        key = tuple(sizes[dim] for dim in self.dims)
        if key not in self._known:
            if self._exhausted():
                return Trial(ok=False, error=self._error)
            self.runs += 1
            outcome = self.trial(sizes)
            self._known[key] = outcome
            if not outcome.ok:
                self._error = outcome.error
        return self._known[key]

    def _exhausted(self) -> bool:
        if self.runs >= self.limits.max_runs:
            self._stop = "count"
        elif self.late():
            self._stop = "time"
        return bool(self._stop)

    def _too_much(self, sizes: Mapping[str, int]) -> Stop:
        if self._estimate is None:
            return ""
        inputs, activations, flops = self._estimate(sizes)
        if inputs > self.limits.max_input_bytes or activations > self.limits.max_activation_bytes:
            return "bytes"
        return "work" if flops > self.limits.max_flops else ""


def _follow(sizes: dict[str, int], relations: Sequence[Relation]) -> dict[str, int]:
    for relation in relations:
        sizes[relation.dim] = relation.value(sizes)
    return sizes


def _stated(spec: DimRange) -> Dim:
    low, high = spec.compiled()
    return Dim(
        min=low,
        max=high,
        opt=spec.optimal(),
        multiple_of=spec.multiple_of,
        buckets=spec.buckets,
        outside=spec.outside,
        pad_from=spec.min if spec.pads else None,
        origin="stated",
        tested=tuple(sorted({low, spec.optimal(), high})),
    )


def _with_opt(name: str, dim: Dim, leading: frozenset[str]) -> Dim:
    """A batch is optimised for its smallest size; other dims for the geometric mean."""
    if dim.origin == "stated":
        return dim
    spec = DimRange(min=dim.min, max=dim.max, multiple_of=dim.multiple_of)
    opt = max(dim.min, min(1, dim.max)) if name in leading else spec.optimal()
    if dim.gaps:
        opt = min(dim.tested, key=lambda size: (abs(size - opt), size))
    return replace(dim, opt=opt, tested=tuple(sorted({*dim.tested, opt})))


def _text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{dim}={size}" for dim, size in sizes.items())
