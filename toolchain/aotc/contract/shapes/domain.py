"""Dims, their domains and relations: the shape language of profile and manifest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds
from aotc.contract.shapes.dim_range import Outside, Size
from aotc.records import field, record, replace

# What ended a search upwards for sizes that run.
Stop = Literal["", "error", "together", "size", "work", "bytes", "count", "time"]


@record
class Dim:
    """The domain of one dim in an artifact, and how it is known.

    `min`, `max`, `multiple_of` and `buckets` are the sizes that graphs take; callers may pass more
    where sizes are padded.
    """

    min: Size
    max: Size
    opt: Size
    multiple_of: Annotated[int, Bounds(1)] = 1
    buckets: Annotated[tuple[Size, ...], "sizes with a static variant each, rising"] = ()
    outside: Annotated[tuple[Outside, ...], "what is done with other sizes; none: refused"] = ()
    pad_from: Annotated[Size | None, "smallest size that is padded; None: nothing is"] = None
    origin: Annotated[
        Literal["stated", "probed"], "stated by the profile or --dim, or found by probing"
    ] = "probed"
    tested: Annotated[tuple[Size, ...], "sizes at which the original model ran at build"] = ()
    gaps: Annotated[tuple[Size, ...], "sizes between the bounds that were seen to fail"] = ()
    stopped_by: Annotated[
        Stop,
        "what ended the search upwards (together: an error, with the other dims at their largest); "
        "empty where the range was stated",
    ] = ""

    def allows(self, size: int) -> bool:
        """Whether some graph takes `size` as it is."""
        if size in self.buckets:
            return True
        return (not self.buckets or "route" in self.outside) and self.spans(size)

    def spans(self, size: int) -> bool:
        """Whether a graph that is for no bucket takes `size`."""
        inside = self.min <= size <= self.max and size % self.multiple_of == 0
        return inside and size not in self.gaps

    def padded(self, size: int) -> int | None:
        """The smallest compiled size at or above `size`; None where `size` is not padded."""
        if self.pad_from is None or not max(self.pad_from, 1) <= size <= self.max:
            return None
        if self.buckets:
            index = bisect_left(self.buckets, size)
            return self.buckets[index] if index < len(self.buckets) else None
        return max(self.min, -(-size // self.multiple_of) * self.multiple_of)

    def accepts(self, size: int) -> bool:
        """Whether callers may pass `size`: it runs as it is, or padded."""
        return self.allows(size) or self.padded(size) is not None

    def text(self) -> str:
        """The sizes in words, such as `32..1024 in steps of 32`."""
        if self.buckets:
            text = ", ".join(str(size) for size in self.buckets)
            if "route" in self.outside:
                text += f", and {self.min}..{self.max}"
        elif self.min == self.max:
            text = str(self.min)
        else:
            steps = f" in steps of {self.multiple_of}" if self.multiple_of > 1 else ""
            text = f"{self.min}..{self.max}{steps}"
        return text if self.pad_from is None else f"{text} (padded from {self.pad_from})"


@record
class Relation:
    """`dim` equals the sum of `terms` plus `constant` (an equality has one term)."""

    dim: str
    terms: Annotated[tuple[str, ...], Bounds(1)]
    constant: int = 0
    enforced: Annotated[
        bool, "false: not known to be needed; calls off it are counted, not refused"
    ] = True
    stated: Annotated[
        bool,
        "true: the profile bounds `dim` to what the bounds of its terms make; calls keep to that "
        "where the relation itself is not enforced",
    ] = False

    def __str__(self) -> str:
        text = " + ".join(self.terms)
        if self.constant:
            text += f" {'+' if self.constant > 0 else '-'} {abs(self.constant)}"
        return f"{self.dim} = {text}"

    def value(self, sizes: Mapping[str, int]) -> int:
        """The size that the relation demands of `dim`; `KeyError` where a term is unknown."""
        return sum(sizes[term] for term in self.terms) + self.constant

    def broken(self, sizes: Mapping[str, int]) -> bool:
        """Whether the sizes of all its dims are known and disagree."""
        if self.dim not in sizes or not all(term in sizes for term in self.terms):
            return False
        return sizes[self.dim] != self.value(sizes)


@record
class Domain:
    """All shapes an artifact was proven for: a box of free dims, and what follows from them."""

    dims: Annotated[Mapping[str, Dim], "free dims by name"] = field(default_factory=dict)
    relations: Annotated[tuple[Relation, ...], "dims that follow from free ones"] = ()

    def complete(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """`sizes` of the free dims, with the related dims added."""
        result = dict(sizes)
        for relation in self.relations:
            result[relation.dim] = relation.value(result)
        return result

    def accepts(self, sizes: Mapping[str, int]) -> bool:
        """Whether callers may pass `sizes` (free dims, at least)."""
        return all(dim.accepts(sizes[name]) for name, dim in self.dims.items() if name in sizes)

    def fitted(self, buckets: Mapping[str, int], sizes: Mapping[str, int]) -> dict[str, int] | None:
        """The sizes to which a call of `sizes` is padded for the variant of `buckets`.

        Each bucketed dim goes to its next bucket, unless `buckets` is empty: then to the grid.
        None where the variant does not take the call.
        """
        wanted = dict(sizes)
        for name, dim in self.dims.items():
            size = sizes.get(name)
            if size is None or size == buckets.get(name):
                continue
            full = dim.padded(size)
            if name in buckets:
                if full != buckets[name]:
                    return None
            elif dim.spans(size):
                full = size
            if full is None:
                return None
            wanted[name] = full
        known = [
            relation
            for relation in self.relations
            if all(term in wanted for term in relation.terms)
            and (relation.enforced or not relation.broken(sizes))
        ]
        return replace(self, relations=tuple(known)).complete(wanted)

    def corner(self, which: Literal["min", "opt", "max"]) -> dict[str, int]:
        """Sizes of every dim at the smallest, optimal or largest corner of the box."""
        return self.complete({name: getattr(dim, which) for name, dim in self.dims.items()})


def raised_to(
    domain: Domain, buckets: Mapping[str, int], sizes: Mapping[str, int]
) -> dict[str, int] | None:
    """`sizes` with each bucketed dim at its bucket, though a smaller bucket would do.

    None where a dim is not padded, or larger than its bucket.
    """
    raised = dict(sizes)
    for name, full in buckets.items():
        size, least = sizes.get(name), domain.dims[name].pad_from
        if size is None or size > full or (size < full and (least is None or size < least)):
            return None
        raised[name] = full
    return domain.fitted(buckets, raised)
