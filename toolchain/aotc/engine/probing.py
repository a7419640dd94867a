"""Find the sizes at which a model runs, and check those that are stated.

Declared free dims lie: some work at one size only, some must be equal under different names,
one may be the sum of two others, some must be multiples of 32.  The prober asks a `trial` (one
run of the original model at given sizes) and proves a box of sizes with relations:

1. a base: some combination of sizes that runs;
2. moves: by what step each dim can move, alone or together with which others;
3. relations: a dim that only moves with others follows from them;
4. stated ranges: their ends and buckets must run, the other dims being as in the base;
5. bounds: downwards to 1 (0 where no output is empty then), upwards by doubling, then bisection;
   then the grid, where only that is stated;
6. the box: its corners must run too, or probed bounds are halved until they do.

Everything is counted, not timed, so that two builds find the same box.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aotc.contract.manifest import Finding
from aotc.contract.profile import ProbeLimits
from aotc.contract.shapes import Dim, DimRange, Domain, Relation
from aotc.engine.bounds import Bounder
from aotc.engine.box import Box, Exhausted, does_not_run
from aotc.engine.candidates import candidates
from aotc.engine.diagnosis import Diagnosis, misbounded
from aotc.engine.moves import Mover
from aotc.engine.relations import Move, relations_of
from aotc.engine.trials import Cost, Trial, Trials
from aotc.errors import AotcError


@dataclass(slots=True)
class Prober:
    """Search for the domain of `dims`.

    `leading` names dims that only ever stand first (batches): they give way first where the box is
    too costly, and their optimal size is the smallest.  `stated` are the profile's ranges, and
    `relations` what it derives from other dims, each after its terms: those are not searched for.
    `findings` is what the search noticed beside the domain.
    """

    dims: Sequence[str]
    leading: frozenset[str]
    stated: Mapping[str, DimRange]
    limits: ProbeLimits
    trial: Callable[[Mapping[str, int]], Trial]
    late: Callable[[], bool]
    cost: Callable[[Sequence[Mapping[str, int]]], Cost]
    """Called once, with the base and two larger sizes of each free dim."""
    relations: Sequence[Relation] = ()

    findings: tuple[Finding, ...] = ()
    _trials: Trials = field(init=False)
    _bounded: dict[str, DimRange] = field(init=False)
    """Stated ranges with bounds, of dims that follow from none."""
    _open: tuple[str, ...] = field(init=False)
    """Dims that follow from none by a stated relation."""

    def __post_init__(self) -> None:
        self._trials = Trials(
            dims=self.dims,
            limits=self.limits,
            trial=self.trial,
            late=self.late,
            relations=self.relations,
        )
        derived = {relation.dim for relation in self.relations}
        self._open = tuple(dim for dim in self.dims if dim not in derived)
        self._bounded = {
            dim: spec for dim, spec in self.stated.items() if spec.bounded and dim in self._open
        }

    def search(self, seeds: Sequence[Mapping[str, int]] = ()) -> Domain:
        """The proven domain.  `seeds` are sizes known to make sense, such as a user's fixtures.

        Raises AOTC-S001 (nothing runs), S005 (a stated size does not run), S011 (related dims are
        bounded differently) and S016 (one size of a stated range runs).
        """
        base = self.base(seeds)
        if base is None:
            raise self._nothing()
        moves, relations = self.relations_at(base)
        self._refuse_misbounded(relations, {})
        derived = {relation.dim for relation in relations}
        self._check_stated(base, relations)
        free = [dim for dim in self._open if dim not in self._bounded]
        if free:
            self._trials.estimate = self.cost(self._points(base, moves, relations))
        box = {
            dim: self._range(dim, base, moves.get(dim), relations)
            for dim in self._open
            if dim not in derived
        }
        domain = self._fitted(Box(self._trials, box, relations, self.leading), base)
        self._refuse_misbounded(domain.relations, domain.dims)
        return domain

    def base(self, seeds: Sequence[Mapping[str, int]] = ()) -> dict[str, int] | None:
        """Sizes that run, those that follow included; None where none are found.

        Raises AOTC-S011 where stated relations and ranges contradict each other.
        """
        self._refuse_misbounded(self.relations, {})
        for sizes in candidates(self._open, self.leading, self._bounded, seeds):
            if self._trials.run(sizes).ok:
                return self._trials.complete(sizes)
            if self._trials.exhausted():
                break
        return None

    def relations_at(
        self, base: Mapping[str, int]
    ) -> tuple[dict[str, Move | None], tuple[Relation, ...]]:
        """How each dim can move from `base`, and which dims follow from others."""
        free = [dim for dim in self._open if dim not in self._bounded]
        movable = [
            dim for dim in self._open if dim not in self._bounded or not self._bounded[dim].fixed()
        ]
        mover = Mover(self._trials, base, self.leading)
        wanted = movable if free or len(movable) > 1 else []
        moves = {dim: mover.move(dim, movable) for dim in wanted}
        return moves, relations_of(base, moves, self._bounded)

    def _nothing(self) -> AotcError:
        stated = f"; stated: {', '.join(self.stated)}" if self.stated else ""
        error = AotcError(
            "AOTC-S001" if not self._bounded else "AOTC-S005",
            f"no working sizes for {', '.join(self.dims) or 'the static inputs'} in "
            f"{self._trials.runs} runs{stated}",
            found=self._trials.error,
        )
        failing = {dim: spec.optimal() for dim, spec in self._bounded.items()}
        return self._diagnosis().refine(error, failing) if failing else error

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
                    points.append(self._trials.complete(grown, relations))
        return points

    def _refuse_misbounded(self, relations: Sequence[Relation], box: Mapping[str, Dim]) -> None:
        error = misbounded(relations, self.stated, box)
        if error is not None:
            raise error

    def _check_stated(self, base: Mapping[str, int], relations: Sequence[Relation]) -> None:
        """The ends and the buckets of each stated range run, the others being as in `base`."""
        derived = {relation.dim for relation in relations}
        for dim, spec in self._bounded.items():
            if dim in derived:
                continue
            for size in dict.fromkeys((*spec.compiled(), *spec.buckets, spec.optimal())):
                sizes = self._trials.complete({**base, dim: size}, relations)
                outcome = self._trials.run(sizes)
                if outcome.ok or self._trials.stop:
                    continue
                bucket = size in spec.buckets
                what = f"bucket {size} of {dim} does not run" if bucket else _end(size, spec)
                raise self._diagnosis().refine(
                    does_not_run(what, sizes, outcome.error), sizes, base
                )

    def _range(
        self,
        dim: str,
        base: Mapping[str, int],
        move: Move | None,
        relations: Sequence[Relation],
    ) -> Dim:
        """The stated or probed sizes of a dim that follows from none."""
        spec = self.stated.get(dim)
        if spec is not None and spec.bounded:
            return _stated(spec)
        bounder = Bounder(self._trials, dim, base, relations)
        found = bounder.bounds(move)
        if spec is None:
            return found
        held = bounder.on_grid(found, spec.multiple_of, 1 if spec.pads else 0)
        if held is None or (spec.opt is not None and not held.min <= spec.opt <= held.max):
            raise AotcError(
                "AOTC-S005",
                f"no multiple of {spec.multiple_of} runs"
                if held is None
                else f"the optimal size {spec.opt} does not run",
                where=dim,
                expected=f"{dim} runs at {found.text()}",
                found=self._trials.error,
            )
        return held

    def _fitted(self, box: Box, base: Mapping[str, int]) -> Domain:
        try:
            domain = box.fit()
            self.findings = tuple(box.findings)
        except Exhausted:
            domain = self._point(box, base)
        return replace(
            domain,
            dims={
                name: _held(dim, self.stated[name])
                if name in self.stated and dim.origin == "probed"
                else dim
                for name, dim in domain.dims.items()
            },
        )

    def _point(self, box: Box, base: Mapping[str, int]) -> Domain:
        """What is left where the search may not go on: the base alone, and the stated ranges."""
        dims = {}
        for name, dim in box.dims.items():
            # A base off the stated grid runs, and is not what was asked for.
            size = dim.min if name in self.stated else base[name]
            alone = Dim(min=size, max=size, opt=size, tested=(size,), stopped_by=self._trials.stop)
            dims[name] = dim if dim.origin == "stated" else alone
        return Domain(dims=dims, relations=box.domain().relations)

    def _diagnosis(self) -> Diagnosis:
        return Diagnosis(self._trials, self._open, self.leading, self._bounded)


def _end(size: int, spec: DimRange) -> str:
    low, high = spec.compiled()
    which = "smallest" if size == low else "largest" if size == high else "optimal"
    return f"the {which} stated sizes do not run"


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
        tested=tuple(sorted({low, spec.optimal(), high, *spec.buckets})),
    )


def _held(dim: Dim, spec: DimRange) -> Dim:
    """A probed range that calls are held to, as the profile names the dim."""
    return replace(
        dim,
        opt=dim.opt if spec.opt is None else spec.opt,
        tested=dim.tested if spec.opt is None else tuple(sorted({*dim.tested, spec.opt})),
        outside=spec.outside,
        pad_from=spec.min if spec.pads else None,
        origin="stated",
    )
