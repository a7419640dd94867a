"""Ranges of dims as a profile states them, the domain of an artifact, and padding."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from aotc.base.records import field, record, replace
from aotc.spec.codec import Bounds, Json, ParseError, Problem, decode

Size = Annotated[int, Bounds(0, 2**53 - 1)]
Outside = Literal["pad", "route"]
CODE = "AOTC-S003"
_RANGE = r"\s*(\d{1,15})\s*(?:\.\.\s*(\d{1,15})\s*(?::\s*(\d{1,15})\s*)?)?"
# Fixtures at sizes of 0, and at the largest sizes of further ranges, begin so.
EMPTY, FURTHER = "empty", "further"
# And at sizes to which samples were repeated, they end so: a slice of such has few values.
REPEATED = "-sampled"
# `max` of a range that is probed; no probe tries as many.
UNBOUNDED = 2**31


@record
class DimRange:
    """The sizes of one dim that callers may pass, and those that variants are compiled for.

    Without `buckets`, one graph takes every size from `min` to `max` in steps of `multiple_of`.
    With `buckets`, each of them gets a static variant, or is captured as a CUDA graph.  `outside`
    says what happens to other sizes: they are padded to the next compiled size, or routed to the
    dynamic variant, by the first of these that is possible; if none is, they are refused.
    """

    min: Annotated[Size, "smallest size that callers may pass"]
    max: Annotated[Size, "largest size"]
    opt: Annotated[int | None, "size to optimize for; unset: the geometric mean"] = None
    multiple_of: Annotated[int, Bounds(1), "every compiled size is a multiple of this"] = 1
    buckets: Annotated[
        tuple[Size, ...], "sizes with a static variant or a CUDA graph each, rising"
    ] = ()
    outside: Annotated[tuple[Outside, ...], "what happens to other sizes; empty: refused"] = ()
    bounded: Annotated[bool, "false: only multiple_of is stated, and the range is probed"] = True

    @classmethod
    def json_schema(cls, plain_of: Callable[[type], dict[str, Json]]) -> dict[str, Json]:
        """The JSON Schema of what `from_json` reads; `plain_of` gives the schema of a record."""
        plain = plain_of(_StatedRange)
        plain["description"] = "a mapping of the fields"
        words = {"enum": ["reject", "pad", "route"]}
        several = {"type": "array", "items": {"enum": ["pad", "route"]}, "uniqueItems": True}
        plain["properties"]["outside"] = {
            "description": "what happens to other sizes; empty: they are refused",
            "anyOf": [words, several],
        }
        plain["anyOf"] = [
            {"required": ["min", "max"]},
            {"required": ["buckets"]},
            {"not": {"anyOf": [{"required": ["min"]}, {"required": ["max"]}]}},
        ]
        return {
            "description": " ".join((cls.__doc__ or "").split()),
            "anyOf": [
                {"type": "integer", "minimum": 0, "description": "one size"},
                {
                    "type": "string",
                    "pattern": r"^\s*\d{1,15}\s*(\.\.\s*\d{1,15}\s*(:\s*\d{1,15}\s*)?)?$",
                    "description": "SIZE, MIN..MAX or MIN..MAX:STEP",
                },
                plain,
            ],
        }

    @classmethod
    def from_json(cls, data: Json) -> DimRange:
        """Read `8`, `"1..8"`, `"32..640:32"`, or a mapping of the fields; raises `ParseError`.

        `outside` may be a single word.  With `buckets`, `min` defaults to 1 if sizes are padded or
        routed and else to the smallest bucket, and `max` to the largest bucket.
        """
        if isinstance(data, int) and not isinstance(data, bool):
            data = {"min": data, "max": data, "opt": data}
        elif isinstance(data, str):
            data = _read_range(data)
        stated = decode(_StatedRange, data)
        found = cls(
            min=stated.minimum(),
            max=stated.maximum(),
            opt=stated.opt,
            multiple_of=stated.multiple_of,
            buckets=stated.buckets,
            outside=stated.actions(),
            bounded=stated.is_bounded(),
        )
        low, high = found.compiled_bounds()
        if found.opt is not None and not low <= found.opt <= high:
            outside = f"{found.opt} is outside {low}..{high}, the sizes that are compiled"
            raise ParseError([Problem("opt", outside, CODE)])
        return found

    @property
    def pads(self) -> bool:
        """Whether sizes outside are padded."""
        return "pad" in self.outside

    @property
    def routes(self) -> bool:
        """Whether sizes outside are routed to the dynamic variant."""
        return "route" in self.outside

    def compiled_bounds(self) -> tuple[int, int]:
        """The smallest and the largest size that a graph takes without padding."""
        if self.buckets and not self.routes:
            return self.buckets[0], self.buckets[-1]
        step = self.multiple_of
        first = max(-(-self.min // step) * step, step if self.pads else 0)
        return first, self.max // step * step

    def allows(self, size: int) -> bool:
        """Whether callers may pass `size`."""
        low, high = self.compiled_bounds()
        if not self.min <= size <= self.max:
            return False
        if size in self.buckets:
            return True
        step = self.multiple_of
        if (not self.buckets or self.routes) and low <= size <= high and size % step == 0:
            return True
        last = self.buckets[-1] if self.buckets else high
        return self.pads and 0 < size <= last

    def text(self) -> str:
        """The sizes that callers may pass, such as `1..8`."""
        return str(self.min) if self.min == self.max else f"{self.min}..{self.max}"

    def is_fixed(self) -> bool:
        """Whether exactly one size is allowed."""
        return self.bounded and self.min == self.max

    def optimal(self) -> int:
        """`opt`, or the compiled size that is nearest to the geometric mean of the bounds."""
        if self.opt is not None:
            return self.opt
        low, high = self.compiled_bounds()
        middle = round((max(low, 1) * max(high, 1)) ** 0.5)
        if self.buckets:
            return min(self.buckets, key=lambda size: (abs(size - middle), size))
        snapped = max(self.multiple_of, round(middle / self.multiple_of) * self.multiple_of)
        return snapped if low <= snapped <= high else low


def _read_range(text: str) -> Json:
    """The fields that `SIZE`, `MIN..MAX` or `MIN..MAX:STEP` states."""
    match = re.fullmatch(_RANGE, text, re.ASCII)
    if match is None:
        forms = "is not SIZE, MIN..MAX or MIN..MAX:STEP"
        raise ParseError([Problem("", f"{text!r} {forms}")])
    low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if step < 1:
        raise ParseError([Problem("multiple_of", f"the step of {text!r} is less than 1", CODE)])
    return {"min": low, "max": high, "multiple_of": step}


@record
class _StatedRange:
    min: Size | None = None
    max: Size | None = None
    opt: int | None = None
    multiple_of: Annotated[int, Bounds(1)] = 1
    buckets: Annotated[tuple[Annotated[int, Bounds(1, 2**53 - 1)], ...], Bounds(None, 256)] = ()
    outside: str | tuple[str, ...] = ()
    bounded: bool = True

    def actions(self) -> tuple[Outside, ...]:
        words = (self.outside,) if isinstance(self.outside, str) else self.outside
        return tuple(word for word in words if word in ("pad", "route"))  # type: ignore[misc]

    def is_bounded(self) -> bool:
        return self.bounded and not (self.min is None and self.max is None and not self.buckets)

    def minimum(self) -> int:
        if self.min is not None:
            return self.min
        if not self.buckets:
            return 1 if "pad" in self.actions() else self.multiple_of
        return 1 if self.actions() else self.buckets[0]

    def maximum(self) -> int:
        if self.max is not None:
            return self.max
        return self.buckets[-1] if self.buckets else self._unbounded()

    def _unbounded(self) -> int:
        return UNBOUNDED // self.multiple_of * self.multiple_of

    def problems(self) -> list[Problem]:
        words = (self.outside,) if isinstance(self.outside, str) else self.outside
        if not self.bounded and (self.buckets or self.max not in (None, self._unbounded())):
            return [Problem("bounded", "false excludes min, max and buckets")]
        unknown = [word for word in words if word not in ("reject", "pad", "route")]
        if unknown or len(set(words)) != len(words) or ("reject" in words and len(words) > 1):
            text = f"{', '.join(words)}: expected reject, pad, route, or [pad, route]"
            return [Problem("outside", text)]
        if list(self.buckets) != sorted(set(self.buckets)):
            return [Problem("buckets", "are not increasing", CODE)]
        if not self.buckets and (self.min is None) != (self.max is None):
            missing = "max" if self.max is None else "min"
            what = "is missing: a range has min and max, or neither and is probed"
            return [Problem(missing, what, CODE)]
        return self._bounds_problems() or self._step_problems() or self._outside_problems()

    def _bounds_problems(self) -> list[Problem]:
        low, high = self.minimum(), self.maximum()
        if low > high:
            return [Problem("min", f"{low} is more than max {high}", CODE)]
        if self.opt is not None and not low <= self.opt <= high:
            return [Problem("opt", f"{self.opt} is outside {low}..{high}", CODE)]
        if self.buckets and not low <= self.buckets[0] <= self.buckets[-1] <= high:
            return [Problem("buckets", f"are outside {low}..{high}", CODE)]
        return []

    def _step_problems(self) -> list[Problem]:
        step, padded = self.multiple_of, "pad" in self.actions()
        if (
            self.is_bounded()
            and not self.buckets
            and (self.maximum() % step or (self.minimum() % step and not padded))
        ):
            ends = f"{self.minimum()}..{self.maximum()}"
            what = f"the ends of {ends} are not multiples of {step}"
            return [Problem("multiple_of", what, CODE)]
        if any(size % step for size in self.buckets):
            return [Problem("buckets", f"are not multiples of {step}", CODE)]
        if self.opt is not None and self.opt % step:
            return [Problem("opt", f"{self.opt} is not a multiple of {step}")]
        if self.opt is not None and self.buckets and self.opt not in self.buckets:
            return [Problem("opt", f"{self.opt} is not one of the buckets")]
        return []

    def _outside_problems(self) -> list[Problem]:
        routed = "route" in self.actions()
        if routed and not self.buckets and self.minimum() == self.maximum():
            what = "route requires buckets, or a range for the dynamic variant"
            return [Problem("outside", what)]
        if self.buckets and not routed and self.maximum() != self.buckets[-1]:
            text = f"{self.maximum()} is above the largest bucket, and sizes are not routed"
            return [Problem("max", text, CODE)]
        if self.buckets and not self.actions() and self.minimum() != self.buckets[0]:
            what = "is below the smallest bucket, and sizes are neither padded nor routed"
            return [Problem("min", f"{self.minimum()} {what}", CODE)]
        return []


# The shapes that an artifact was proven for: domains of dims, and relations between dims.


# Why a search for larger sizes that run ended.
Stop = Literal["", "error", "combined", "size", "flops", "bytes", "runs", "time"]


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
        "why the search for larger sizes ended (combined: an error, with the other dims at their "
        "maximum); empty if the range was stated",
    ] = ""

    @property
    def least(self) -> int:
        """The smallest size that has elements; 0 if none is in the range."""
        return self.min or min(self.multiple_of, self.max)

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


def sizes_in_words(sizes: Mapping[str, int]) -> str:
    """Sizes of dims in one line, as messages have them: `batch=8, sequence=128`."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


@record
class Domain:
    """The shapes that an artifact was proven for: ranges of free dims, and dims that follow."""

    dims: Annotated[Mapping[str, Dim], "free dims by name"] = field(default_factory=dict)
    relations: Annotated[tuple[Relation, ...], "dims that follow from free ones"] = ()
    not_empty: Annotated[
        tuple[tuple[str, ...], ...],
        "dims that were seen to fail if all of them have size 0 in one call, which is refused",
    ] = ()
    also: Annotated[
        tuple[Mapping[str, Dim], ...],
        "further ranges of all free dims, in which some are smaller and others reach further",
    ] = ()

    def further(self) -> tuple[Domain, ...]:
        """The further ranges, each as a domain of its own."""
        return tuple(replace(self, dims=dims, also=()) for dims in self.also)

    def complete(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """`sizes` of the free dims together with the dims that follow from them."""
        result = dict(sizes)
        for relation in self.relations:
            result[relation.dim] = relation.value(result)
        return result

    def accepts(self, sizes: Mapping[str, int]) -> bool:
        """Whether callers may pass `sizes`; only free dims are looked at."""
        inside = all(d.accepts(sizes[name]) for name, d in self.dims.items() if name in sizes)
        return (inside or self._is_further(sizes)) and not self.empty_where_it_fails(sizes)

    def empty_where_it_fails(self, sizes: Mapping[str, int]) -> tuple[str, ...]:
        """Dims that have size 0 in `sizes` and were seen to fail so together; none if it runs."""
        empty = {name for name, size in sizes.items() if size == 0}
        return next((names for names in self.not_empty if empty.issuperset(names)), ())

    def _is_further(self, sizes: Mapping[str, int]) -> bool:
        return any(
            all(dim.spans(sizes[name]) for name, dim in dims.items() if name in sizes)
            for dims in self.also
        )

    def padded_sizes(
        self, buckets: Mapping[str, int], sizes: Mapping[str, int]
    ) -> dict[str, int] | None:
        """The sizes to which a call with `sizes` is padded for the variant of `buckets`.

        A dim with a bucket is padded to that bucket, other dims to the next multiple if necessary.
        None if the variant does not take the call.
        """
        wanted = dict(sizes)
        further = not buckets and self._is_further(sizes)
        for name, dim in self.dims.items() if not further else ():
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

    def corner(self, which: Literal["min", "least", "opt", "max"]) -> dict[str, int]:
        """The sizes of all dims if every free dim has its minimum, optimal or maximum size.

        Or, with `least`, its smallest size that is not 0.
        """
        return self.complete({name: getattr(dim, which) for name, dim in self.dims.items()})

    def empty_corners(self) -> list[dict[str, int]]:
        """Sizes at which one free dim that may be empty is, and then all of them; others optimal.

        Without those that were seen to fail.
        """
        names = [name for name, dim in self.dims.items() if dim.min == 0 < dim.max]
        several = [(name,) for name in names] + ([tuple(names)] if len(names) > 1 else [])
        best = {name: dim.opt for name, dim in self.dims.items()}
        corners = [self.complete({**best, **dict.fromkeys(empty, 0)}) for empty in several]
        return [sizes for sizes in corners if not self.empty_where_it_fails(sizes)]


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


Side = Literal["right", "left"]


@record
class PadSpec:
    """The value with which an input is padded, and on which side."""

    value: Annotated[bool | int | float | str, "of the input's dtype; text for text"] = 0
    side: Annotated[Side, "right: after the given elements; left: before them"] = "right"


@record
class Crop:
    """An axis of an output whose size is the sum of `dims` plus `constant`, some of them padded."""

    output: str
    axis: Annotated[int, Bounds(0)]
    dims: Annotated[tuple[str, ...], Bounds(1)]
    constant: int = 0
    side: Annotated[Side, "side on which it is cropped"] = "right"

    def size(self, sizes: Mapping[str, int]) -> int:
        """The size of the axis for the unpadded `sizes`."""
        return sum(sizes[dim] for dim in self.dims) + self.constant


@record
class Padding:
    """How inputs are padded and outputs cropped; those not named stay as they are."""

    inputs: Annotated[Mapping[str, PadSpec], "by input with a padded dim"] = field(
        default_factory=dict
    )
    crops: tuple[Crop, ...] = ()
