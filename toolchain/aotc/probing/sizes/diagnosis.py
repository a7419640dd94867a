"""Why stated sizes do not run, found by probing one dim alone in few runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aotc.contract.shapes.dim_range import DimRange
from aotc.contract.shapes.domain import Dim, Relation
from aotc.errors import AotcError
from aotc.probing.sizes.bounds import Bounder
from aotc.probing.sizes.dim_hints import DimHints
from aotc.probing.sizes.found_relations import relations_of
from aotc.probing.sizes.likely_sizes import candidates
from aotc.probing.sizes.moves import Mover
from aotc.probing.sizes.trials import Trials
from aotc.records import record

# Runs for the whole diagnosis, and for finding sizes that run with one dim left free.
_MAX_RUNS, _MAX_CANDIDATES = 160, 40


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
        not spec.buckets and _is_equality(relation) and spec == stated.get(relation.terms[0])
    )


def _is_equality(relation: Relation) -> bool:
    return len(relation.terms) == 1 and not relation.constant


def _contradiction(relation: Relation, expected: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-S011",
        f"the model runs only where {relation}",
        where=relation.dim,
        expected=expected,
        found=found,
        fix=f"State '{relation}' under relations, and the range of {relation.terms[0]!r} alone."
        if _is_equality(relation)
        else f"State the ranges of {', '.join(dict.fromkeys(relation.terms))} alone.",
    )


def _range(spec: DimRange) -> str:
    buckets = f" with buckets {', '.join(str(size) for size in spec.buckets)}"
    return (f"{spec.min}..{spec.max}" if spec.bounded else f"multiples of {spec.multiple_of}") + (
        buckets if spec.buckets else ""
    )
