"""Checks the relations that a profile states by runs of the original model.

Here dims have the names that the model declares, and equal dims are equal by relations, so that
each statement can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.graph.symbols import Statement, Symbols, free_dims
from aotc.sizes.dim_hints import DimHints, leading_dims
from aotc.sizes.inputs.fixtures import FixtureInputs
from aotc.sizes.runs import input_bytes
from aotc.sizes.search import Prober, is_equality
from aotc.sizes.trials import Trial
from aotc.spec.payload import Finding, Value
from aotc.spec.profile import ProbeLimits
from aotc.spec.relations import in_dependency_order
from aotc.spec.shapes import DimRange, Domain, Relation

# How many runs may search for sizes that run without a statement.
_MAX_RUNS = 200
# What ended the search of a range with one size, if other sizes failed.
_STOPPED_BY_FAILURE = ("error", "combined")


@record(kw_only=False)
class RelationCheck:
    """Runs at sizes of declared dims, with and without each statement of the profile."""

    symbols: Symbols
    trial: Callable[[Mapping[str, int]], Trial]
    limits: ProbeLimits
    late: Callable[[], bool]

    def refuse_stuck(self, stated: Mapping[str, DimRange], domain: Domain) -> None:
        """Raise AOTC-S014, as `refuse_wrong`, for statements on dims that have only one size."""
        stuck = {
            n
            for n, d in domain.dims.items()
            if d.min == d.max and d.stopped_by in _STOPPED_BY_FAILURE
        }
        named = self.symbols.names
        self.refuse_wrong(
            stated,
            [
                statement
                for statement in self.symbols.statements
                if stuck.intersection(named.get(dim, dim) for dim in _dims(statement))
            ],
        )

    def refuse_wrong(
        self, stated: Mapping[str, DimRange], statements: Sequence[Statement] | None = None
    ) -> None:
        """Raise AOTC-S014 if the model runs without one of the statements, or without all of them.

        To be called if nothing runs with them.
        """
        statements = self.symbols.statements if statements is None else tuple(statements)
        candidates: list[tuple[Statement, ...]] = [(statement,) for statement in statements]
        if len(statements) > 1:
            candidates.append(statements)
        for left_out in candidates:
            kept = [statement for statement in self.symbols.statements if statement not in left_out]
            prober = self._prober(kept, left_out, stated)
            base = prober.base()
            if base is None or all(
                base[r.dim] == r.value(base) for statement in left_out for r in statement.relations
            ):
                continue
            names = {dim for statement in left_out for dim in _dims(statement)}
            found = [r for r in prober.relations_at(base)[1] if names & {r.dim, *r.terms}]
            names |= {dim for relation in found for dim in (relation.dim, *relation.terms)}
            sizes = ", ".join(f"{dim}={base[dim]}" for dim in prober.dims if dim in names)
            instead = " and ".join(str(relation) for relation in found)
            raise AotcError(
                "AOTC-S014",
                f"the model runs only where {instead}"
                if instead
                else "the model runs only where the relation does not hold",
                where="; ".join(statement.text for statement in left_out),
                expected=instead,
                found=f"it runs at {sizes}",
            )

    def unneeded_findings(self, domain: Domain) -> list[Finding]:
        """AOTC-S025 for each statement that the model also runs without; two runs each."""
        found = []
        for statement in self.symbols.statements:
            sizes = self._sizes_that_break(statement, domain)
            if sizes is not None:
                text = ", ".join(f"{dim}={sizes[dim]}" for dim in _dims(statement))
                found.append(
                    Finding(
                        code="AOTC-S025",
                        what=f"the model also runs at {text}",
                        where=statement.text,
                    )
                )
        return found

    def _sizes_that_break(self, statement: Statement, domain: Domain) -> dict[str, int] | None:
        """Sizes that run and break `statement` but no other statement."""
        sizes = self._inner_sizes(domain)
        others = [other for other in self.symbols.statements if other is not statement]
        kept = [relation for other in others for relation in other.relations]
        relation = statement.relations[0]
        # A size of 1 is broadcast to any other, so it shows nothing.
        if min(sizes[dim] for dim in {relation.dim, *relation.terms}) < 2 and is_equality(relation):
            return None
        step = max(self._step(dim, domain) for dim in {relation.dim, *relation.terms})
        for shift in (step, -step):
            moved = {**sizes, relation.dim: sizes[relation.dim] + shift}
            for other in in_dependency_order([*kept, *statement.relations[1:]]):
                moved[other.dim] = other.value(moved)
            if min(moved.values()) > 1 and self.trial(moved).ok:
                return moved
        return None

    def _inner_sizes(self, domain: Domain) -> dict[str, int]:
        """Sizes of the declared dims that are proven, and larger than 1 if possible."""
        free = {
            name: next((size for size in dim.tested if size > 1 and dim.allows(size)), dim.opt)
            for name, dim in domain.dims.items()
        }
        known = domain.complete(free)
        return {
            dim: known[self.symbols.names.get(dim, dim)] for dim in free_dims(self.symbols.declared)
        }

    def _step(self, dim: str, domain: Domain) -> int:
        known = domain.dims.get(self.symbols.names.get(dim, dim))
        return known.multiple_of if known is not None else 1

    def _prober(
        self,
        kept: Sequence[Statement],
        left_out: Sequence[Statement],
        stated: Mapping[str, DimRange],
    ) -> Prober:
        relations = in_dependency_order(
            [relation for statement in kept for relation in statement.relations]
        )
        freed = {relation.dim for statement in left_out for relation in statement.relations}
        derived = {relation.dim for relation in relations}
        ranges = {
            dim: stated.get(self.symbols.names.get(dim, dim))
            for dim in free_dims(self.symbols.declared)
        }
        return Prober(
            dims=free_dims(self.symbols.declared),
            hints=DimHints(leading=leading_dims(self.symbols.declared)),
            stated={
                dim: spec
                for dim, spec in ranges.items()
                if spec is not None and dim not in freed and dim not in derived
            },
            limits=replace(self.limits, max_runs=min(_MAX_RUNS, self.limits.max_runs)),
            trial=self.trial,
            late=self.late,
            cost=lambda _: lambda _: (0, 0, 0.0),
            relations=relations,
            input_bytes=partial(input_bytes, self.symbols.declared),
        )


def refuse_contradictions(
    given: Sequence[FixtureInputs], inputs: Sequence[Value], relations: Sequence[Relation]
) -> None:
    """Raise AOTC-I024 if a user's fixture contradicts stated `relations` or itself."""
    for item in given:
        for value in inputs:
            shape = getattr(item.inputs.get(value.name), "shape", ())
            for dim, size in zip(value.shape or (), shape, strict=False):
                if isinstance(dim, str) and item.sizes.get(dim, size) != size:
                    raise _contradiction(f"{item.name}: {value.name}", dim, item.sizes[dim], size)
        for relation in relations:
            if item.sizes.keys() >= {relation.dim, *relation.terms}:
                wanted, size = relation.value(item.sizes), item.sizes[relation.dim]
                if size != wanted:
                    where = f"{item.name}: {relation.dim}"
                    raise _contradiction(where, str(relation), wanted, size)


def _contradiction(where: str, what: str, expected: int, found: int) -> AotcError:
    return AotcError(
        "AOTC-I024",
        f"the fixture's sizes contradict each other: {what}",
        where=where,
        expected=str(expected),
        found=str(found),
    )


def _dims(statement: Statement) -> list[str]:
    return list(dict.fromkeys(dim for r in statement.relations for dim in (*r.terms, r.dim)))
