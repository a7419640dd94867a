"""The dims of recorded requests that vary, follow from others, or are planned for."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

from aotc.contract.codec.spelling import nearest
from aotc.contract.shapes.domain import Relation
from aotc.contract.traffic import RecordedTraffic
from aotc.errors import AotcError

_MAX_DIMS = 2
# A dim with fewer distinct sizes may match others by chance.
_MIN_DISTINCT = 3


class VaryingDims:
    """The dims of the traffic that vary, follow from others, or are planned for."""

    def __init__(
        self, recorded: RecordedTraffic, wanted: Sequence[str], relations: Sequence[Relation] = ()
    ) -> None:
        """`wanted` names the dims to plan for; `relations` are those that the profile states.

        Raises AOTC-I027 (`wanted` names an unknown dim), S004 (there is no free dim) and S024
        (more than two dims remain).
        """
        if not recorded.dims:
            raise AotcError(
                "AOTC-S004",
                "the model has no free dim to plan for",
                where=recorded.path,
                fix="Export the model with a dynamic axis.",
            )
        self.recorded = recorded
        columns = dict(zip(recorded.dims, zip(*recorded.counts, strict=True), strict=True))
        for name in wanted:
            if name not in columns:
                close = nearest(name, recorded.dims)
                raise AotcError(
                    "AOTC-I027",
                    f"the traffic has no dim {name!r}"
                    + (f"; did you mean {close!r}?" if close else ""),
                    expected=", ".join(recorded.dims),
                )
        self.fixed = {
            name: sizes[0]
            for name, sizes in columns.items()
            if len(set(sizes)) == 1 and name not in wanted
        }
        varying = [name for name in recorded.dims if name not in self.fixed]
        self.derived = _derived_dims(columns, varying, wanted)
        self.follows = self.derived | _stated_relations(columns, relations)
        free = [name for name in varying if name not in self.follows]
        self.planned = tuple(wanted) or tuple(free) or recorded.dims[-1:]
        self.fixed = {name: size for name, size in self.fixed.items() if name not in self.planned}
        if len(self.planned) > _MAX_DIMS:
            raise AotcError(
                "AOTC-S024",
                f"{len(self.planned)} dims vary",
                where=recorded.path,
                expected="one or two, named by --dim-names",
                found=", ".join(self.planned),
            )
        self.ranged = [name for name in free if name not in self.planned]

    def counts(self) -> dict[tuple[int, ...], int]:
        """Requests by their sizes of the planned dims."""
        found: Counter[tuple[int, ...]] = Counter()
        for sizes, count in self.recorded.sizes():
            found[tuple(sizes[name] for name in self.planned)] += count
        return dict(found)

    def most_common_size(self, name: str) -> int:
        """The size of a dim that most requests have."""
        found: Counter[int] = Counter()
        for sizes, count in self.recorded.sizes():
            found[sizes[name]] += count
        return found.most_common(1)[0][0]

    def span(self, name: str) -> tuple[int, int]:
        """The smallest and largest recorded size of a dim."""
        sizes = [sizes[name] for sizes, _ in self.recorded.sizes()]
        return min(sizes), max(sizes)


def _stated_relations(
    columns: Mapping[str, Sequence[int]], relations: Sequence[Relation]
) -> dict[str, tuple[str, ...]]:
    return {
        relation.dim: relation.terms
        for relation in relations
        if not relation.constant and columns.keys() >= {relation.dim, *relation.terms}
    }


def _derived_dims(
    columns: Mapping[str, Sequence[int]], varying: Sequence[str], wanted: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Varying dims that equal another, or the sum of two others, in every request.

    A sum may have a term that never varies.  A few sizes may match by chance and are not enough.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name in varying:
        sizes = columns[name]
        if name in wanted or len(set(sizes)) < _MIN_DISTINCT:
            continue
        others = [other for other in columns if other != name and other not in found]
        singles: list[tuple[str, ...]] = [(other,) for other in others if other in varying]
        for terms in (*singles, *itertools.combinations(others, 2)):
            sums = zip(*(columns[term] for term in terms), strict=True)
            if all(sum(summed) == size for summed, size in zip(sums, sizes, strict=True)):
                found[name] = terms
                break
    return found
