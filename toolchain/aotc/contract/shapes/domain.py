"""The shapes that an artifact was proven for: domains of dims, and relations between dims."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds
from aotc.contract.shapes.dim_range import Outside, Size
from aotc.records import field, record, replace

# Why a search for larger sizes that run ended.
Stop = Literal["", "error", "together", "size", "work", "bytes", "count", "time"]


@record
class Dim:
    """The sizes of one dim of an artifact, and how they are known.

    `min`, `max`, `multiple_of` and `buckets` describe the sizes that graphs take; callers may pass
    further sizes if these are padded.
    """

    min: Size
    max: Size
    opt: Size
    multiple_of: Annotated[int, Bounds(1)] = 1
    buckets: Annotated[
        tuple[Size, ...], "sizes with a static variant or a CUDA graph each, rising"
    ] = ()
    outside: Annotated[tuple[Outside, ...], "what happens to other sizes; empty: refused"] = ()
    pad_from: Annotated[Size | None, "smallest size that is padded; None: sizes are not padded"] = (
        None
    )
    origin: Annotated[
        Literal["stated", "probed"], "stated by the profile or --dim, or found by probing"
    ] = "probed"
    tested: Annotated[tuple[Size, ...], "sizes at which the original model ran at build"] = ()
    gaps: Annotated[tuple[Size, ...], "sizes between the bounds that failed"] = ()
    stopped_by: Annotated[
        Stop,
        "why the search for larger sizes ended (together: an error, with the other dims at their "
        "maximum); empty if the range was stated",
    ] = ""

    def allows(self, size: int) -> bool:
        """Whether a graph takes `size` without padding."""
        if size in self.buckets:
            return True
        return (not self.buckets or "route" in self.outside) and self.spans(size)

    def spans(self, size: int) -> bool:
        """Whether a graph for a range, not for a bucket, takes `size`."""
        inside = self.min <= size <= self.max and size % self.multiple_of == 0
        return inside and size not in self.gaps

    def padded_size(self, size: int) -> int | None:
        """The compiled size to which `size` is padded, or None if it cannot be padded."""
        if self.pad_from is None or not max(self.pad_from, 1) <= size <= self.max:
            return None
        if self.buckets:
            index = bisect_left(self.buckets, size)
            return self.buckets[index] if index < len(self.buckets) else None
        return max(self.min, -(-size // self.multiple_of) * self.multiple_of)

    def accepts(self, size: int) -> bool:
        """Whether callers may pass `size`: it runs as it is or padded."""
        return self.allows(size) or self.padded_size(size) is not None

    def text(self) -> str:
        """The sizes as text, such as `32..1024 in steps of 32`."""
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
    """`dim` equals the sum of `terms` plus `constant`; an equality has one term."""

    dim: str
    terms: Annotated[tuple[str, ...], Bounds(1)]
    constant: int = 0
    enforced: Annotated[
        bool,
        "false: not known to be necessary; calls that do not fulfil it are counted, not refused",
    ] = True
    stated: Annotated[
        bool,
        "true: the profile bounds `dim` to the sums of its terms' bounds; calls must keep to these "
        "even if the relation is not enforced",
    ] = False

    def __str__(self) -> str:
        text = " + ".join(self.terms)
        if self.constant:
            text += f" {'+' if self.constant > 0 else '-'} {abs(self.constant)}"
        return f"{self.dim} = {text}"

    def value(self, sizes: Mapping[str, int]) -> int:
        """The size of `dim` that follows from `sizes`; raises `KeyError` if a term is missing."""
        return sum(sizes[term] for term in self.terms) + self.constant

    def is_broken(self, sizes: Mapping[str, int]) -> bool:
        """Whether `sizes` has all of its dims and they do not fulfil it."""
        if self.dim not in sizes or not all(term in sizes for term in self.terms):
            return False
        return sizes[self.dim] != self.value(sizes)


@record
class Domain:
    """The shapes that an artifact was proven for: ranges of free dims, and dims that follow."""

    dims: Annotated[Mapping[str, Dim], "free dims by name"] = field(default_factory=dict)
    relations: Annotated[tuple[Relation, ...], "dims that follow from free ones"] = ()

    def complete(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """`sizes` of the free dims together with the dims that follow from them."""
        result = dict(sizes)
        for relation in self.relations:
            result[relation.dim] = relation.value(result)
        return result

    def accepts(self, sizes: Mapping[str, int]) -> bool:
        """Whether callers may pass `sizes`; only free dims are looked at."""
        return all(dim.accepts(sizes[name]) for name, dim in self.dims.items() if name in sizes)

    def padded_sizes(
        self, buckets: Mapping[str, int], sizes: Mapping[str, int]
    ) -> dict[str, int] | None:
        """The sizes to which a call with `sizes` is padded for the variant of `buckets`.

        A dim with a bucket is padded to that bucket, other dims to the next multiple if necessary.
        None if the variant does not take the call.
        """
        wanted = dict(sizes)
        for name, dim in self.dims.items():
            size = sizes.get(name)
            if size is None or size == buckets.get(name):
                continue
            full = dim.padded_size(size)
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
            and (relation.enforced or not relation.is_broken(sizes))
        ]
        return replace(self, relations=tuple(known)).complete(wanted)

    def corner(self, which: Literal["min", "opt", "max"]) -> dict[str, int]:
        """The sizes of all dims if every free dim has its minimum, optimal or maximum size."""
        return self.complete({name: getattr(dim, which) for name, dim in self.dims.items()})


def raised_to_buckets(
    domain: Domain, buckets: Mapping[str, int], sizes: Mapping[str, int]
) -> dict[str, int] | None:
    """`sizes` with each bucketed dim padded to its bucket, even if a smaller bucket is enough.

    None if a dim cannot be padded, or is larger than its bucket.
    """
    raised = dict(sizes)
    for name, full in buckets.items():
        size, pad_from = sizes.get(name), domain.dims[name].pad_from
        if size is None or size > full or (size < full and (pad_from is None or size < pad_from)):
            return None
        raised[name] = full
    return domain.padded_sizes(buckets, raised)
