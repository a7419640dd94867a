"""Find the sizes at which a model runs, and check those that are stated.

Declared free dims are unreliable: some run at one size only, some must be equal under different
names, one may be the sum of two others, some must be multiples of 32.  The prober calls a `trial`
(one run of the original model at given sizes) and proves a box of sizes with relations:

1. a base: some combination of sizes that runs;
2. moves: the step by which each dim can move, alone or together with others;
3. relations: a dim that only moves with others is derived from them; relations that hold at a
   second base without common factors, and that nothing was seen to break, are laws;
4. stated ranges: their ends and buckets must run, with the other dims as in the base;
5. bounds: down to 1, up to sizes chosen by the estimated cost of a run; where those fail, by
   doubling and bisection;
6. the box: its corners must run too, or probed bounds shrink until they do;
7. size 0 of each dim, and of several at once.

All limits are counts, so that two builds find the same box.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from aotc.base.errors import AotcError
from aotc.base.records import field, record, replace
from aotc.sizes.bounds import SHARE, Bounder, Box, Exhausted, Growth, bisect, not_running
from aotc.sizes.dim_hints import (
    STAGES,
    DimHints,
    Kind,
    candidates,
    largest_tried,
    mismatched_with,
    rungs_of,
    suggested_sizes,
    usual_maximums,
)
from aotc.sizes.relations import Challenge, Move, Mover, relations_of
from aotc.sizes.trials import ENDED, Cost, Trial, Trials
from aotc.spec.payload import Finding
from aotc.spec.profile import ProbeLimits
from aotc.spec.shapes import Dim, DimRange, Domain, Relation, Stop

# Maps of these sides are small, and a run there that does this work, a tenth of a second of a core,
# takes the place of one at sides twice as long.
_LIGHT_MAP: Final = 32
_HEAVY_WORK: Final = 1e10
# How often to start from another base because the relations found do not hold elsewhere.
_MAX_REBASES: Final = 2
# Minimum differences between the sizes at which costs are counted: strides and frames are whole
# numbers, which small differences would not show.
_MIN_COST_STEPS: Final[Mapping[Kind, int]] = {
    "length": 16, "audio": 16000, "image": 64, "map": 32,
}  # fmt: skip
# Minimum number of runs for the first sizes.
_MIN_RUNS: Final = 400
# By what factor the first inputs may exceed stated ones in bytes.
_INPUT_BYTES_FACTOR: Final = 4
# Inputs of which a batch is taken to cost what its entries cost.
_LARGE_INPUT_BYTES: Final = 1 << 20
# How many sizes may be skipped as too large: many dims have countless combinations.
_MAX_SKIPPED: Final = 4000
# How many sizes that failures suggest are tried.
_MAX_SUGGESTED: Final = 24
# Up to this many dims all combinations at size 0 are tried; beyond, pairs, and all at once.
_MAX_DIMS_EMPTY_AT_ONCE: Final = 3
_MAX_EMPTY_PAIRS: Final = 28
# How many further ranges a domain has, and how many are searched.
_MAX_FURTHER, _MAX_FURTHER_ASKED = 3, 5
# Runs for the whole diagnosis, and for finding sizes that run with one dim left free.
_MAX_RUNS, _MAX_CANDIDATES = 160, 40


class RelatedDims(NamedTuple):
    """Sizes that run, how each dim can move from there, and which dims are derived from others.

    `second_base` are other sizes that run, small ones if possible.
    """

    base: dict[str, int]
    moves: Mapping[str, Move | None]
    relations: tuple[Relation, ...]
    second_base: dict[str, int] | None


@record(frozen=False, kw_only=False)
class Prober:
    """Searches the domain of `dims`.

    `hints` tell what to try first.  `stated` are the ranges of the profile; its `relations` are not
    searched for, and each comes after those of its terms.  `recall` returns runs done before;
    `input_bytes` counts the bytes of all inputs.  `findings` accompany the domain.
    """

    dims: Sequence[str]
    hints: DimHints
    stated: Mapping[str, DimRange]
    limits: ProbeLimits
    trial: Callable[[Mapping[str, int]], Trial]
    late: Callable[[], bool]
    cost: Callable[[Sequence[Mapping[str, int]]], Cost]
    """Called once, with sizes that run and two larger sizes of each free dim."""
    relations: Sequence[Relation] = ()
    recall: Callable[[Mapping[str, int]], Trial | None] = lambda _: None
    input_bytes: Callable[[Mapping[str, int]], int] = lambda _: 0
    step: Callable[[int], None] = lambda _: None
    """Called with how many steps of the search are done."""
    work: Callable[[Mapping[str, int]], float] = lambda _: 0.0
    """The work of a run at sizes that run, in floating-point operations."""
    try_empty: bool = True
    """Whether size 0 is tried."""
    further: bool = True
    """Whether further ranges are searched, where a dim ended for its combination with others."""

    findings: tuple[Finding, ...] = ()
    _trials: Trials = field(init=False)
    _bounded: dict[str, DimRange] = field(init=False)
    """Stated ranges with bounds, of independent dims."""
    _seed_maximums: dict[str, int] = field(default_factory=dict)
    """The largest size of each dim in the seeds."""
    _leads: tuple[str, ...] = field(init=False)
    """Dims that no stated relation derives from others."""

    def __post_init__(self) -> None:
        grids = {d: s.multiple_of for d, s in self.stated.items() if s.multiple_of > 1}
        self.hints = replace(self.hints, grids=grids)
        self._trials = Trials(
            dims=self.dims,
            limits=self.limits,
            trial=self.trial,
            late=self.late,
            relations=self.relations,
            recall=self.recall,
            input_bytes=self.input_bytes,
        )
        derived = {relation.dim for relation in self.relations}
        self._leads = tuple(dim for dim in self.dims if dim not in derived)
        self._bounded = {
            dim: spec for dim, spec in self.stated.items() if spec.bounded and dim in self._leads
        }

    def search(self, seeds: Sequence[Mapping[str, int]] = ()) -> Domain:
        """The proven domain.  `seeds` are sizes known to make sense, such as those of a fixture.

        Raises AOTC-S001 (nothing runs), S005 (a stated size does not run), S011 (related dims are
        bounded differently) and S016 (one size of a stated range runs).
        """
        self.step(0)
        base = self.base(seeds)
        if base is None:
            raise self._nothing_runs_error()
        base = self._lighter(base)
        self.step(1)
        self._seed_maximums = {
            dim: max(sizes)
            for dim in self._leads
            if (sizes := [seed[dim] for seed in seeds if dim in seed])
        }
        related = self._related_dims(base)
        self._refuse_contradiction(related.relations, {})
        self.step(2)
        self._check_stated(related.base, related.relations)
        self.step(3)
        box = self._box(related)
        self.step(4)
        domain = self._fitted_domain(box, related.base)
        self._refuse_contradiction(domain.relations, domain.dims)
        self.step(5)
        domain = self._with_empty_sizes(domain)
        self.step(6)
        # A variant for buckets takes the sizes of one range.
        if self.further and not any(s.buckets or s.pads for s in self.stated.values()):
            domain = replace(
                domain, also=tuple(itertools.islice(self._further(domain, related), _MAX_FURTHER))
            )
        self.step(7)
        self.findings += tuple(self._ended_early())
        return domain

    def _ended_early(self) -> Iterator[Finding]:
        if self._trials.stop in ENDED:
            what = f"the search {ENDED[self._trials.stop]}: what it did not try is not claimed"
            yield Finding(code="AOTC-S008", what=what)
        if self._trials.given_up:
            what = f"the search did its work, and without {'; '.join(self._trials.given_up)}"
            yield Finding(code="AOTC-S008", what=what)

    def base(self, seeds: Sequence[Mapping[str, int]] = ()) -> dict[str, int] | None:
        """Sizes that run, with all derived dims; None if none are found.

        Sizes whose inputs exceed `max_input_bytes` are not tried, unless they are stated to be that
        large.  Raises AOTC-S011 if stated relations and ranges contradict each other.
        """
        self._refuse_contradiction(self.relations, {})
        return first_sizes(self._trials, self._leads, self.hints, self._bounded, seeds)

    def _lighter(self, base: dict[str, int]) -> dict[str, int]:
        """`base`, or half the sides of maps, if a run there takes so long that one at it is heavy.

        Some dozen runs at and near the base tell how dims can move, each as dear as the base:
        attention over all places of a map makes four times as many of them sixteen times as dear.
        Networks for maps, such as latent images, halve them a few times only.
        """
        maps = [
            dim for dim in self._leads if self.hints.kind(dim) == "map" and dim not in self.stated
        ]
        if not maps or max(base[dim] for dim in maps) < 2 * _LIGHT_MAP:
            return base
        smaller = self._trials.complete({**base, **{dim: base[dim] // 2 for dim in maps}})
        heavy = self._trials.run(smaller).ok and self.work(smaller) > _HEAVY_WORK
        return smaller if heavy else base

    def relations_at(
        self, base: Mapping[str, int]
    ) -> tuple[dict[str, Move | None], tuple[Relation, ...]]:
        """How each dim can move from `base`, and which dims are derived from others."""
        free = [dim for dim in self._leads if dim not in self._bounded]
        fixed = {dim for dim, spec in self._bounded.items() if spec.is_fixed()}
        movable = [dim for dim in self._leads if dim not in fixed]
        mover = Mover(self._trials, base, self.hints)
        moves = mover.moves(movable if free or len(movable) > 1 else [])
        return moves, relations_of(base, moves, self._bounded, self.stated)

    def _related_dims(self, base: dict[str, int]) -> RelatedDims:
        """What is found at `base` and challenged; from another base if it holds nowhere else."""
        for again in range(_MAX_REBASES + 1):
            moves, relations = self.relations_at(base)
            challenge = Challenge(self._trials, self.hints, base, moves, relations, self.stated)
            second_base = challenge.second_base()
            if (
                second_base is not None
                or not relations
                or self._trials.stop
                or again == _MAX_REBASES
            ):
                break
            other = challenge.counterexample()
            if other is None:
                break
            base = other
        relations = agreeing_relations(challenge.judge(second_base), self.stated)
        return RelatedDims(base, moves, relations, second_base)

    def _box(self, related: RelatedDims) -> Box:
        """The stated ranges, and for all other dims what runs and is worth its cost."""
        anchor = self._anchor(related)
        derived = {relation.dim for relation in related.relations}
        led = [dim for dim in self._leads if dim not in derived]
        free = [dim for dim in led if dim not in self._bounded]
        bounders = {
            dim: Bounder(
                self._trials,
                dim,
                anchor,
                related.relations,
                declared_sizes=self.hints.sizes,
                is_batch=dim in self.hints.leading,
                tested={related.base[dim]},
            )
            for dim in free
        }
        if free:
            self._trials.count_by(self.cost(self._cost_points(anchor, related)))
        dims = {
            dim: bounders[dim].lowered(related.moves.get(dim))
            if dim in bounders
            else stated_dim(self._bounded[dim])
            for dim in led
        }
        box = Box(self._trials, dims, related.relations, self.hints, anchor)
        self._try_stuck(box, [dim for dim in free if related.moves.get(dim) is None])
        steps = {dim: move.step for dim in free if (move := related.moves.get(dim)) is not None}
        self._grow(box, bounders, steps)
        for dim in free:
            box.dims[dim] = self._on_stated_grid(dim, box.dims[dim], bounders[dim])
        return box

    def _anchor(self, related: RelatedDims) -> dict[str, int]:
        """Sizes that run, as small as known, from which the free dims are bounded.

        Stated dims are as in the base; batches are 1 if that runs.
        """
        derived = {relation.dim for relation in related.relations}
        held = {dim: related.base[dim] for dim in self._bounded}
        batches = [dim for dim in self._leads if dim in self.hints.leading]
        ones = {dim: 1 for dim in batches if dim not in held and dim not in derived}
        starts = [start for start in (related.second_base, related.base) if start is not None]
        for start in sorted(starts, key=lambda sizes: sum(sizes.values())):
            for changed in (ones, {}):
                sizes = self._trials.complete({**start, **held, **changed}, related.relations)
                if self._trials.run(sizes).ok:
                    return sizes
        return dict(related.base)

    def _try_stuck(self, box: Box, stuck: Sequence[str]) -> None:
        """Mark dims that could not move but run larger with all others at their minimum."""
        corner = box.domain().corner("min")
        for dim in stuck:
            found = box.dims[dim]
            larger = self._trials.complete({**corner, dim: found.max + 1}, box.relations)
            if found.stopped_by == "error" and self._trials.run(larger).ok:
                box.dims[dim] = replace(found, stopped_by="combined")

    def _grow(self, box: Box, bounders: Mapping[str, Bounder], steps: Mapping[str, int]) -> None:
        """Raise the dims in `steps` to sizes that are worth their cost and run together."""
        down = {dim: box.dims[dim] for dim in steps}
        lows = {dim: max(found.max, self._seed_maximums.get(dim, 0)) for dim, found in down.items()}
        limits = {
            dim: max(largest_tried(self.hints.kind(dim), self.limits.max_size), low)
            for dim, low in lows.items()
        }
        rungs = {
            dim: rungs_of(self.hints.kind(dim), lows[dim], limits[dim], steps[dim])
            for dim, found in down.items()
            # A dim off the grid of its step is bounded by trying.
            if found.multiple_of == steps[dim]
        }
        self._choose_maximums(box, rungs)
        if rungs.keys() == down.keys() and self._trials.run(box.domain().corner("max")).ok:
            for dim in sorted(steps, key=self.hints.leading.__contains__):
                found = box.dims[dim]
                last = found if len(rungs[dim]) > 1 else bounders[dim].with_tried_end(found)
                box.dims[dim] = bounders[dim].without_gaps(last)
            return
        rungs = {}
        for dim, found in down.items():
            chosen = box.dims[dim].max
            box.dims[dim] = up = bounders[dim].raised(found, steps[dim], limits[dim], chosen)
            sizes = rungs_of(self.hints.kind(dim), min(found.max, up.max), up.max, up.multiple_of)
            rungs[dim] = up.tested if up.gaps else sizes
        reached = {dim: (box.dims[dim].max, box.dims[dim].stopped_by) for dim in rungs}
        self._choose_maximums(box, rungs)
        if not self._trials.run(box.domain().corner("max")).ok:
            # Each dim reaches this alone but not together with the others; usual sizes may.
            for targets in usual_maximums():
                target = {dim: targets.get(self.hints.kind(dim), 1) for dim in rungs}
                usual = {d: [s for s in sizes if s <= target[d]] for d, sizes in rungs.items()}
                self._choose_maximums(box, {d: usual[d] or sizes[:1] for d, sizes in rungs.items()})
                if self._trials.run(box.domain().corner("max")).ok:
                    break
            for dim in rungs:
                box.dims[dim] = replace(box.dims[dim], stopped_by="combined")
            for dim in sorted(self.hints.caches.intersection(rungs)):
                self._raise_cache(box, dim, reached[dim][0])
        for dim, (maximum, stop) in reached.items():
            if box.dims[dim].max == maximum:
                box.dims[dim] = replace(box.dims[dim], stopped_by=stop)

    def _raise_cache(self, box: Box, dim: str, reached: int) -> None:
        """Raise a cache, which grows from call to call, as far as all maximums run together.

        Alone it may reach `reached`.
        """
        found = box.dims[dim]
        step = found.multiple_of

        def runs_at(size: int) -> bool:
            box.dims[dim] = replace(found, max=size)
            corner = box.domain().corner("max")
            return not self._trials.exceeded_limit(corner, SHARE) and self._trials.run(corner).ok

        high = found.max
        if high < reached and runs_at(high):
            high = bisect(high, reached + step, step, runs_at)
        tested = tuple(sorted({*found.tested, high}))
        box.dims[dim] = replace(found, max=high, tested=tested)

    def _choose_maximums(self, box: Box, rungs: Mapping[str, Sequence[int]]) -> None:
        """Give each dim in `rungs` the largest of its sizes that the limits allow."""

        def exceeded_limit(sizes: Mapping[str, int], share: float) -> Stop:
            corner = box.domain().corner("max")
            terms = {dim: corner[dim] for dim in box.dims} | dict(sizes)
            return self._trials.exceeded_limit(self._trials.complete(terms, box.relations), share)

        for dim, (size, stop) in Growth(rungs, self.hints, exceeded_limit).choose().items():
            found = box.dims[dim]
            tested = tuple(sorted({*(s for s in found.tested if s <= size), size}))
            gaps = tuple(gap for gap in found.gaps if gap < size)
            box.dims[dim] = replace(found, max=size, tested=tested, gaps=gaps, stopped_by=stop)

    def _nothing_runs_error(self) -> AotcError:
        stated = f"; stated: {', '.join(self.stated)}" if self.stated else ""
        ended = f"; the search {ENDED[self._trials.stop]}" if self._trials.stop in ENDED else ""
        error = AotcError(
            "AOTC-S001" if not self._bounded else "AOTC-S005",
            f"no working sizes for {', '.join(self.dims) or 'the static inputs'} in "
            f"{self._trials.runs} runs{stated}{ended}",
            found=self._trials.error,
        )
        failing = {dim: spec.optimal() for dim, spec in self._bounded.items()}
        return self._diagnosis().refine(error, failing) if failing else error

    def _cost_points(self, anchor: Mapping[str, int], related: RelatedDims) -> list[dict[str, int]]:
        """The anchor, and two larger sizes of each free dim; of batches of large inputs one."""
        derived = {relation.dim for relation in related.relations}
        points = [dict(anchor)]
        large = self._trials.inputs_exceed(anchor, _LARGE_INPUT_BYTES)
        for dim, move in related.moves.items():
            if move is None or dim in derived:
                continue
            minimum = _MIN_COST_STEPS.get(self.hints.kind(dim), 1)
            grow = -(-max(anchor[dim], minimum) // move.step) * move.step
            once = large and dim in self.hints.leading
            for times in (1,) if once else (1, 2):
                grown = {**anchor, dim: anchor[dim] + times * grow}
                points.append(self._trials.complete(grown, related.relations))
        return points

    def _refuse_contradiction(self, relations: Sequence[Relation], box: Mapping[str, Dim]) -> None:
        error = range_contradiction(relations, self.stated, box)
        if error is not None:
            raise error

    def _check_stated(self, base: Mapping[str, int], relations: Sequence[Relation]) -> None:
        """The ends and buckets of each stated range must run, with the other dims as in `base`."""
        derived = {relation.dim for relation in relations}
        for dim, spec in self._bounded.items():
            if dim in derived:
                continue
            for size in dict.fromkeys((*spec.compiled_bounds(), *spec.buckets, spec.optimal())):
                sizes = self._trials.complete({**base, dim: size}, relations)
                outcome = self._trials.run(sizes)
                if outcome.ok or self._trials.stop:
                    continue
                bucket = size in spec.buckets
                what = f"bucket {size} of {dim} does not run" if bucket else _end_text(size, spec)
                raise self._diagnosis().refine(not_running(what, sizes, outcome.error), sizes, base)

    def _on_stated_grid(self, dim: str, found: Dim, bounder: Bounder) -> Dim:
        """`found`, on the grid that the profile states for a dim without bounds."""
        spec = self.stated.get(dim)
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

    def _fitted_domain(self, box: Box, base: Mapping[str, int]) -> Domain:
        try:
            domain = self._fit_or_base(box, base)
        except AotcError:
            alone = self._base_alone(box, base)
            if alone == box.dims:
                raise
            # Ranges that are not stated shrink as far as they can.
            box = Box(self._trials, alone, box.relations, self.hints, base)
            domain = self._fit_or_base(box, base)
        self.findings = tuple(box.findings)
        return replace(
            domain,
            dims={
                name: enforced_dim(dim, self.stated[name])
                if name in self.stated and dim.origin == "probed"
                else dim
                for name, dim in domain.dims.items()
            },
            relations=tuple(enforced_relation(r, domain, self.stated) for r in domain.relations),
        )

    def _with_empty_sizes(self, domain: Domain) -> Domain:
        """`domain`, with 0 in each probed range that runs there; where it fails is told, too.

        The other dims have their optimal sizes.
        """
        if not self.try_empty:
            return domain
        best = domain.corner("opt")
        failing: list[tuple[str, ...]] = []
        running = [name for name, dim in domain.dims.items() if dim.max and not dim.min]
        for names in itertools.chain(
            ((name,) for name, dim in domain.dims.items() if dim.min and name not in self.stated),
            # What ran by itself, as far as it is known by then.
            _several(running),
        ):
            if any(set(known) <= set(names) for known in failing):
                continue
            empty = domain.complete({**best, **dict.fromkeys(names, 0)})
            outcome = self._trials.run(empty)
            if not outcome.ok:
                # What was not tried is not claimed: alone it stays outside, together it is refused.
                if self._trials.stop and len(names) == 1:
                    continue
                failing.append(names)
            elif len(names) == 1 and domain.dims[names[0]].min <= domain.dims[names[0]].multiple_of:
                running += names
        dims = {
            name: replace(dim, min=0, tested=tuple(sorted({0, *dim.tested})))
            if name in running
            else dim
            for name, dim in domain.dims.items()
        }
        return replace(domain, dims=dims, not_empty=tuple(failing))

    def _further(self, domain: Domain, related: RelatedDims) -> Iterator[Mapping[str, Dim]]:
        """Ranges in which some dims are smaller and others reach further.

        Decoders need a cache of 0, or one new token: many entries without a past, or with a token
        each, and one token at the end of the longest past.  Where images and texts as large as any
        are run one at a time, batches are of those of the first stage.
        """
        probed = {name: dim for name, dim in domain.dims.items() if dim.origin == "probed"}
        limited = [name for name, dim in probed.items() if dim.stopped_by == "combined"]
        kinds = {name: self.hints.kind(name) for name in domain.dims}
        asked: list[tuple[dict[str, Dim], list[str]]] = []
        for lead, dim in domain.dims.items() if limited else ():
            # What is joined to a cache looks like one.
            sizes = (0, 1) if lead in self.hints.caches else (1,)
            for size in sizes if kinds[lead] == "length" else ():
                if dim.spans(size) and size < dim.max:
                    held = replace(dim, min=size, max=size, opt=size, tested=(size,), gaps=())
                    asked.append(({lead: held}, [name for name in limited if name != lead]))
        asked.sort(key=lambda each: max(dim.max for dim in each[0].values()) != 1)
        few = [
            name
            for name, dim in probed.items()
            if kinds[name] == "batch" and dim.max < STAGES[-1]["batch"]
            if dim.stopped_by in ("bytes", "flops")
        ]
        usual = {
            name: replace(
                dim, min=dim.least, max=most, tested=tuple(s for s in dim.tested if s <= most)
            )
            for name, dim in probed.items()
            if (most := STAGES[0].get(kinds[name], dim.max) // dim.multiple_of * dim.multiple_of)
            and dim.least <= most < dim.max
        }
        if few and usual:
            asked.append((usual, few))
        for smaller, grown in asked[:_MAX_FURTHER_ASKED]:
            if not grown or self._trials.gives_up("further ranges, where some dims are smaller"):
                continue
            box = self._box_along(domain, related, smaller, grown)
            if box is None or self._trials.stop:
                continue
            if any(box.dims[name].max > domain.dims[name].max for name in grown):
                yield box.dims

    def _box_along(
        self,
        domain: Domain,
        related: RelatedDims,
        smaller: Mapping[str, Dim],
        grown: Sequence[str],
    ) -> Domain | None:
        """The box in which some dims are `smaller`; those in `grown` are bounded anew."""
        dims = {name: replace(dim, min=dim.least) for name, dim in domain.dims.items()}
        dims |= smaller
        # Costs that are counted near the usual sizes are right there.
        start = {
            name: min(max(dim.opt, dim.min), dim.max) if name in smaller else dim.min
            for name, dim in dims.items()
        }
        anchor = self._trials.complete(start, related.relations)
        if not self._trials.run(anchor).ok:
            return None
        box = Box(self._trials, dims, related.relations, self.hints, anchor)
        free = [name for name, dim in dims.items() if dim.min < dim.max or name in grown]
        moves = {name: related.moves.get(name) or Move((name,), 1) for name in free}
        bounders = {
            name: Bounder(
                self._trials,
                name,
                anchor,
                related.relations,
                is_batch=name in self.hints.leading,
                tested={anchor[name]},
            )
            for name in grown
        }
        for name in grown:
            box.dims[name] = bounders[name].lowered(Move((name,), moves[name].step))
        steps = {name: moves[name].step for name in grown}
        # Dims that could not move before were not counted yet, and others cost less here.
        here = related._replace(moves={name: Move((name,), m.step) for name, m in moves.items()})
        self._trials.count_by(self.cost(self._cost_points(anchor, here)))
        try:
            self._grow(box, bounders, steps)
            return box.fit()
        except (Exhausted, AotcError):
            return None

    def _fit_or_base(self, box: Box, base: Mapping[str, int]) -> Domain:
        try:
            return box.fit()
        except Exhausted:
            return Domain(dims=self._base_alone(box, base), relations=box.domain().relations)

    def _base_alone(self, box: Box, base: Mapping[str, int]) -> dict[str, Dim]:
        """What remains when no more runs are allowed: the base, and the stated ranges."""
        dims = {}
        for name, dim in box.dims.items():
            # A base off the stated grid runs but was not asked for.
            size = dim.min if name in self.stated else base[name]
            stop = self._trials.stop or "error"
            alone = Dim(min=size, max=size, opt=size, tested=(size,), stopped_by=stop)
            dims[name] = dim if dim.origin == "stated" else alone
        return dims

    def _diagnosis(self) -> Diagnosis:
        return Diagnosis(self._trials, self._leads, self.hints, self._bounded)


def _several(dims: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Combinations of two or more of `dims`, which may grow until the first is asked for."""
    if len(dims) > _MAX_DIMS_EMPTY_AT_ONCE:
        yield from itertools.islice(itertools.combinations(dims, 2), _MAX_EMPTY_PAIRS)
        yield tuple(dims)
        return
    for count in range(2, len(dims) + 1):
        yield from itertools.combinations(dims, count)


def _end_text(size: int, spec: DimRange) -> str:
    low, high = spec.compiled_bounds()
    which = "smallest" if size == low else "largest" if size == high else "optimal"
    return f"the {which} stated sizes do not run"


# The first sizes at which a model runs: likely ones, and those that failures suggest.


def first_sizes(
    trials: Trials,
    dims: Sequence[str],
    hints: DimHints,
    stated: Mapping[str, DimRange],
    seeds: Sequence[Mapping[str, int]],
) -> dict[str, int] | None:
    """Sizes of `dims` that run, with the dims derived from them; None if none are found.

    Uses up to a quarter of all runs.  Sizes whose inputs exceed `max_input_bytes` are skipped,
    unless they are `stated` to be that large; after `_MAX_SKIPPED` of them the search ends.
    """
    smallest = dict.fromkeys(dims, 1) | {dim: spec.optimal() for dim, spec in stated.items()}
    bytes_stated = trials.input_bytes(trials.complete(smallest))
    factor = _INPUT_BYTES_FACTOR if stated else 1
    max_bytes = max(trials.limits.max_input_bytes, factor * bytes_stated)
    limit = trials.limits.max_runs
    last = trials.runs + min(limit, max(_MIN_RUNS, limit // 4))
    inner = [dim for dim in dims if dim not in stated and dim not in hints.leading]
    suggestion_count = skipped = 0
    for sizes in candidates(dims, hints, stated, seeds):
        queue = [sizes]
        while queue:
            tried = queue.pop(0)
            if trials.inputs_exceed(tried, max_bytes):
                skipped += 1
                if skipped > _MAX_SKIPPED:
                    return None
                continue
            outcome = trials.run(tried)
            if outcome.ok:
                return _with_named_sum(trials, trials.complete(tried), hints, stated)
            if trials.runs >= last or trials.stop:
                return None
            suggestions = (
                list(_suggested_sizes(tried, inner, outcome.error))
                if suggestion_count < _MAX_SUGGESTED
                else []
            )
            suggestion_count += len(suggestions)
            queue += suggestions
    return None


def _with_named_sum(
    trials: Trials, found: dict[str, int], hints: DimHints, stated: Mapping[str, DimRange]
) -> dict[str, int]:
    """`found`, or sizes near it at which a sum holds that names suggest, if it runs there too.

    Attention that also takes a cache of fixed length runs where all lengths are equal, from which
    nothing follows for a cache that grows.  Some attention takes a past with one entry only.
    """
    ones = {dim: 1 for dim in hints.leading if dim in found and dim not in stated}
    for relation in hints.sums:
        if relation.dim in stated or not relation.is_broken(found):
            continue
        for rows in ({}, ones):
            near = {**found, **rows}
            near = trials.complete({**near, relation.dim: relation.value(near)})
            if trials.run(near).ok:
                return near
    return found


def _suggested_sizes(
    failed: Mapping[str, int], inner: Sequence[str], error: str
) -> Iterator[dict[str, int]]:
    """Sizes that the `error` at `failed` suggests for the `inner` dims that share a size there.

    Either all of them get another size; or one of them gets the size that does not match its own,
    as a dim that is concatenated with one more token has, or with a past.
    """
    for size in dict.fromkeys(failed[dim] for dim in inner):
        alike = [dim for dim in inner if failed[dim] == size]
        for other in suggested_sizes(error, size):
            yield {**failed, **dict.fromkeys(alike, other)}
        for other in mismatched_with(error, size) if len(alike) > 1 else ():
            yield from ({**failed, dim: other} for dim in alike)


# Why stated sizes do not run, found by probing one dim alone in few runs.


@record(kw_only=False)
class Diagnosis:
    """Finds what runs instead of what the profile states; `dims` are the independent dims.

    Its runs are counted: they add at most a fixed number to those of the search.
    """

    trials: Trials
    dims: Sequence[str]
    hints: DimHints
    stated: Mapping[str, DimRange]

    def refine(
        self, error: AotcError, failing: Mapping[str, int], working: Mapping[str, int] | None = None
    ) -> AotcError:
        """`error` about the sizes `failing`, or a more precise one if a few runs allow it.

        `working` are sizes that run; without them they are searched with stated dims left free.
        Returns AOTC-S016 if one size of a stated range runs, AOTC-S011 if stated dims depend on
        each other, and else AOTC-S005 with the sizes that do run.
        """
        self.trials.allow_more(_MAX_RUNS)
        base = working or self._working_sizes()
        if base is None:
            return error
        dims = [dim for dim in self.dims if dim in self.stated and failing[dim] != base[dim]]
        for dim in dims:
            if not self.trials.run({**base, dim: failing[dim]}).ok:
                return self._explain(error, dim, base, failing)
        return error

    def _working_sizes(self) -> dict[str, int] | None:
        """Sizes that run if one stated dim, or all of them, are left free."""
        freed: list[tuple[str, ...]] = [(dim,) for dim in self.stated]
        if len(freed) > 1:
            freed.append(tuple(self.stated))
        for names in freed:
            kept = {dim: spec for dim, spec in self.stated.items() if dim not in names}
            tried = candidates(self.dims, self.hints, kept, ())
            # Candidates repeat; sizes that were run before cost nothing.
            maximum = self.trials.runs + _MAX_CANDIDATES
            for sizes in tried:
                if self.trials.run(sizes).ok:
                    return sizes
                if self.trials.runs >= maximum:
                    break
        return None

    def _explain(
        self, error: AotcError, dim: str, base: Mapping[str, int], failing: Mapping[str, int]
    ) -> AotcError:
        mover = Mover(self.trials, base, self.hints)
        move = mover.move(dim, self.dims)
        relations: tuple[Relation, ...] = ()
        if move is not None and len(move.dims) > 1:
            moves = {other: mover.move(other, self.dims) for other in move.dims}
            relations = relations_of(base, moves, self.stated)
            related = range_contradiction(relations, self.stated, {})
            if related is not None:
                return related
        along = [_inverted(relation) if relation.dim == dim else relation for relation in relations]
        found = Bounder(self.trials, dim, base, along).bounds(move)
        spec = self.stated[dim]
        if self.trials.stop:
            return error
        if found.min == found.max and not spec.is_fixed():
            return AotcError(
                "AOTC-S016",
                f"the model runs only where {dim} is {found.min}",
                where=dim,
                expected=str(found.min),
                found=f"{spec.min}..{spec.max}",
            )
        reached = found.stopped_by not in ("", "error")
        return AotcError(
            error.code,
            error.what,
            where=error.where or dim,
            expected=f"{dim} runs at {found.text()}" + (", and maybe beyond" if reached else ""),
            found=error.found or self.trials.run({**base, dim: failing[dim]}).error,
        )


def _inverted(relation: Relation) -> Relation:
    """The same relation, solved for its first term (of a sum: with the other terms unchanged)."""
    if len(relation.terms) > 1:
        return Relation(dim=relation.dim, terms=(relation.dim,))
    return Relation(dim=relation.terms[0], terms=(relation.dim,), constant=-relation.constant)


def range_contradiction(
    relations: Sequence[Relation], stated: Mapping[str, DimRange], box: Mapping[str, Dim]
) -> AotcError | None:
    """AOTC-S011 if a derived dim has a stated range that its relation contradicts, else None.

    The bounds of terms are the stated ones, else those of `box`; a relation with other terms is
    skipped.
    """
    lows = {dim: spec.min for dim, spec in stated.items() if spec.bounded}
    highs = {dim: spec.max for dim, spec in stated.items() if spec.bounded}
    lows |= {dim: other.min for dim, other in box.items() if dim not in lows}
    highs |= {dim: other.max for dim, other in box.items() if dim not in highs}
    for relation in relations:
        if not lows.keys() >= set(relation.terms):
            continue
        low, high = relation.value(lows), relation.value(highs)
        spec = stated.get(relation.dim)
        if spec is not None and (spec.bounded, spec.min, spec.max) != (True, low, high):
            return _contradiction(relation, f"{low}..{high}", _range(spec))
        if spec is not None and not _is_consistent(spec, relation, stated):
            return _contradiction(relation, "no buckets, steps or outside of its own", _range(spec))
        lows[relation.dim], highs[relation.dim] = low, high
    return None


def _is_consistent(spec: DimRange, relation: Relation, stated: Mapping[str, DimRange]) -> bool:
    """Whether a derived dim is stated without anything that its terms do not say."""
    plain = not spec.buckets and not spec.outside and spec.multiple_of == 1
    return plain or (
        not spec.buckets and is_equality(relation) and spec == stated.get(relation.terms[0])
    )


def is_equality(relation: Relation) -> bool:
    """Whether a relation says that two dims are equal."""
    return len(relation.terms) == 1 and not relation.constant


def _contradiction(relation: Relation, expected: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-S011",
        f"the model runs only where {relation}",
        where=relation.dim,
        expected=expected,
        found=found,
        fix=f"State '{relation}' under relations, and the range of {relation.terms[0]!r} alone."
        if is_equality(relation)
        else f"State the ranges of {', '.join(dict.fromkeys(relation.terms))} alone.",
    )


def _range(spec: DimRange) -> str:
    buckets = f" with buckets {', '.join(str(size) for size in spec.buckets)}"
    return (f"{spec.min}..{spec.max}" if spec.bounded else f"multiples of {spec.multiple_of}") + (
        buckets if spec.buckets else ""
    )


# Dims and relations of a domain as the profile states them.


def stated_dim(spec: DimRange) -> Dim:
    """The dim of a stated range with bounds: the sizes that graphs accept."""
    low, high = spec.compiled_bounds()
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


def enforced_dim(dim: Dim, spec: DimRange) -> Dim:
    """A probed range that is enforced on calls, because the profile names the dim."""
    return replace(
        dim,
        opt=dim.opt if spec.opt is None else spec.opt,
        tested=dim.tested if spec.opt is None else tuple(sorted({*dim.tested, spec.opt})),
        outside=spec.outside,
        pad_from=spec.min if spec.pads else None,
        origin="stated",
    )


def agreeing_relations(
    relations: Sequence[Relation], stated: Mapping[str, DimRange]
) -> tuple[Relation, ...]:
    """`relations` without those that are not laws and contradict the `stated` ranges of their dims.

    Such a dim is independent, as stated.
    """
    bounded = {dim: spec for dim, spec in stated.items() if spec.bounded}
    return tuple(
        relation
        for relation in relations
        if relation.enforced
        or relation.dim not in stated
        or (
            bounded.keys() >= {relation.dim, *relation.terms}
            and range_contradiction((relation,), bounded, {}) is None
        )
    )


def enforced_relation(
    relation: Relation, domain: Domain, stated: Mapping[str, DimRange]
) -> Relation:
    """`relation` as it is enforced on calls.

    It is enforced if a term is padded: derived dims are padded along.  If it is not enforced, its
    dim is still held to its stated range.
    """
    dims = [domain.dims[term] for term in relation.terms if term in domain.dims]
    padded = any(dim.buckets or dim.pad_from is not None for dim in dims)
    enforced = relation.enforced or padded
    return replace(relation, enforced=enforced, stated=not enforced and relation.dim in stated)
