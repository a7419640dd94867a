"""What the answers of the reference show: of an output that shows nothing, nothing is proven.

A variant may be wrong everywhere and still give equal answers, if the answers are empty, NaN, one
value throughout, at the ends of a Clip or a Sigmoid, or the same for all inputs.  What a whole set
of fixtures shows of one output is judged here, from a few numbers of each answer.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from aotc.base.records import record
from aotc.graph.values import Data
from aotc.session.slices import laid_out
from aotc.spec.parted import PartedAxis

Kind = Literal["empty", "not-finite", "saturated", "constant", "repeated"]

# Of values that are not exactly at an end: half the distance of floats next to 1, of the range.
_AT_END: Final = 2.0**-24
_CHUNK: Final = 1 << 20
_WORDS: Final[Mapping[str, str]] = {
    "empty": "empty",
    "not-finite": "NaN or infinite throughout",
}


@record
class Ends:
    """The numbers at which an operator cuts its values off, and the share that is too much."""

    op_type: str
    numbers: tuple[float, ...]
    limit: float


@record
class Answer:
    """What one answer of one output is judged by.

    `at_ends` counts the finite elements at the ends of the operator that makes the output,
    `lowest` and `highest` are of finite elements (of text: in its order), `digest` is of all bytes.
    `given` is a digest of the values of the inputs that the output depends on, and `sizes` their
    shapes.
    """

    shapes: tuple[tuple[int, ...], ...]
    elements: int
    finite: int
    at_ends: int = 0
    lowest: Any = None
    highest: Any = None
    digest: str
    given: str
    sizes: tuple[tuple[int, ...], ...] = ()

    @property
    def is_uniform(self) -> bool:
        """Whether all finite elements have one value."""
        return bool(self.lowest == self.highest)

    def lack(self, ends: Ends | None) -> Kind | None:
        """Why this answer alone shows nothing; None if it may show something."""
        if not self.elements:
            return "empty"
        if not self.finite:
            return "not-finite"
        if ends is not None and self.at_ends >= ends.limit * self.finite and not self.is_uniform:
            return "saturated"
        return None


@record
class Part:
    """A part of an output, the graph's `value`, that a Concat joins to others.

    It is the indices `first` to `last` of `axis`, or all from `first` on if `last` is None.
    """

    output: str
    value: str
    axis: PartedAxis
    first: int
    last: int | None

    @property
    def place(self) -> str:
        """Which indices of which axis."""
        last = "" if self.last is None else str(self.last)
        return f"axis {self.axis.axis}, indices {self.first}..{last} of {self.axis.node}"

    def of(self, value: Data) -> Data:
        """The part of the output's value; nothing where its shape is not as the graph says."""
        try:
            array = laid_out(np.asarray(value), self.axis.steps)
        except ValueError:
            return np.empty(0)
        stop = None if self.last is None else self.last + 1
        found: Data = array[(slice(None),) * self.axis.axis + (slice(self.first, stop),)]
        return found


@record
class OutputTraits:
    """What the graph tells of an output or a part of it: which inputs decide it, where it ends.

    `computes`: numbers in floating point are among what decides it.
    """

    name: str
    reads: tuple[str, ...]
    computes: bool
    ends: Ends | None = None
    part: Part | None = None

    @property
    def output(self) -> str:
        """The output, also of a part of it."""
        return self.part.output if self.part is not None else self.name

    @property
    def words(self) -> str:
        """What it is called in messages."""
        if self.part is None:
            return f"output {self.name!r}"
        return f"{self.part.place} of output {self.output!r}"

    def of(self, value: Data) -> Data:
        """What of the output's value is meant."""
        return self.part.of(value) if self.part is not None else value


@record
class Lack:
    """That an output shows nothing in any fixture, and why: the kind that most answers have.

    `unsure`: only further inputs can tell, as no two answers can be compared.
    """

    kind: Kind
    what: str
    unsure: bool = False


def answer_of(
    value: Data,
    ends: Ends | None = None,
    inputs: Mapping[str, Data] | None = None,
    given: str | None = None,
) -> Answer:
    """The answer `value` in numbers; `inputs` are those that the output depends on.

    `given` stands for their values (None: a digest of them does).
    """
    digest = hashlib.sha256()
    shapes: list[tuple[int, ...]] = []
    elements = finite = at_ends = 0
    lowest = highest = None
    for array in _arrays(value):
        shapes.append(array.shape)
        elements += array.size
        text = array.dtype.kind in "OSU"
        digest.update(_bytes(array))
        for part in _finite_parts(array):
            finite += part.size
            low, high = (min(part), max(part)) if text else (part.min().item(), part.max().item())
            lowest = low if lowest is None else min(lowest, low)
            highest = high if highest is None else max(highest, high)
            if ends is not None and not text:
                at_ends += _count_at_ends(part, ends)
    return Answer(
        shapes=tuple(shapes),
        elements=elements,
        finite=finite,
        at_ends=at_ends,
        lowest=lowest,
        highest=highest,
        digest=digest.hexdigest(),
        given=digest_of(inputs or {}) if given is None else given,
        sizes=tuple(array.shape for each in (inputs or {}).values() for array in _arrays(each)),
    )


def digest_of(inputs: Mapping[str, Data]) -> str:
    """A digest of names and values, by which equal inputs are found."""
    found = hashlib.sha256()
    for name in sorted(inputs):
        for array in _arrays(inputs[name]):
            found.update(f"{name} {array.shape} ".encode())
            found.update(_bytes(array))
    return found.hexdigest()


def _bytes(array: np.ndarray[Any, Any]) -> Any:
    if array.dtype.kind in "OSU":
        return repr(array.tolist()).encode()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _arrays(value: Data) -> Iterator[np.ndarray[Any, Any]]:
    """The tensors of a value; a map is that of its values in the order of its keys."""
    if value is None:
        return
    if isinstance(value, dict):
        yield np.array([value[key] for key in sorted(value)])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _arrays(item)
    else:
        yield np.asarray(value)


def _finite_parts(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """The finite elements in order, some at a time, as numbers that can be ordered."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        if part.dtype.kind not in "OSUbiu":
            if part.dtype.kind == "c":
                part = np.concatenate([part.real, part.imag])
            # Types of ml_dtypes have no kind of their own, and not all functions.
            part = part.astype(np.float64)
            part = part[np.isfinite(part)]
        if part.size:
            yield part


def _count_at_ends(part: np.ndarray[Any, Any], ends: Ends) -> int:
    close = np.zeros(part.shape, bool)
    width = max(ends.numbers) - min(ends.numbers)
    for end in ends.numbers:
        close |= np.abs(part.astype(np.float64) - end) <= width * _AT_END
    return int(np.count_nonzero(close))


def lack_of(
    answers: Sequence[Answer], ends: Ends | None = None, *, each: str = "fixture"
) -> Lack | None:
    """Why `answers`, those of one output in all fixtures, show nothing; None if one does.

    Answers to calls without elements, at sizes of 0, are not among them.  `each` is what a call is
    named in words.
    """
    if not answers:
        return None
    counted = _Counted(each, len(answers))
    lacks = [answer.lack(ends) for answer in answers]
    kinds = Counter(kind for kind in lacks if kind is not None)
    others = [answer for answer, kind in zip(answers, lacks, strict=True) if kind is None]
    if not others:
        return Lack(kind=kinds.most_common(1)[0][0], what=_in_words(kinds, answers, ends, counted))
    first = others[0]
    if not kinds["empty"] and all(
        answer.is_uniform and answer.lowest == first.lowest for answer in others
    ):
        more = f", and {_in_words(kinds, answers, ends, counted)}" if kinds else ""
        return Lack(
            kind="constant",
            what=f"had the one value {_number(first.lowest)} in {counted.of(len(others))}{more}",
            unsure=sum(answer.elements for answer in others) == 1,
        )
    if kinds:
        # Then answers differ in more than their sizes.
        return None
    by_shape: dict[Any, set[str]] = {}
    by_sizes: dict[Any, set[Any]] = {}
    given: dict[Any, set[str]] = {}
    for answer in others:
        by_shape.setdefault(answer.shapes, set()).add(answer.digest)
        by_sizes.setdefault(answer.sizes, set()).add((answer.shapes, answer.digest))
        given.setdefault(answer.sizes, set()).add(answer.given)
    if max(map(len, (*by_shape.values(), *by_sizes.values()))) > 1:
        return None
    # Inputs of other sizes may be the same in all that an answer looks at.
    different = max(map(len, given.values()))
    return Lack(
        kind="repeated",
        what=f"had equal answers for {different} different inputs",
        unsure=different == 1,
    )


class _Counted(NamedTuple):
    """What is counted, and how many there are."""

    each: str
    total: int

    def of(self, count: int) -> str:
        """So many of them, in words."""
        if count == self.total:
            return f"the only {self.each}" if count == 1 else f"all {count} {self.each}s"
        return f"{count} of {self.total} {self.each}s"


def _in_words(
    kinds: Mapping[Kind, int], answers: Sequence[Answer], ends: Ends | None, counted: _Counted
) -> str:
    parts = []
    for kind, count in kinds.items():
        if kind == "saturated" and ends is not None:
            held = [answer for answer in answers if answer.lack(ends) == kind]
            share = sum(each.at_ends for each in held) / sum(each.finite for each in held)
            numbers = " or ".join(format(number, "g") for number in ends.numbers)
            what = f"had {100 * share:.4g}% of its values at the ends of {ends.op_type} ({numbers})"
            parts.append(f"{what} in {counted.of(count)}")
        else:
            parts.append(f"was {_WORDS[kind]} in {counted.of(count)}")
    return " and ".join(parts)


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return format(value, "g") if isinstance(value, float) else repr(value)[:60]
