"""Which generated values are used at which sizes: a size that fails may do so for its values.

The first values have the number 0.  At a size that fails others are tried, those first that were
accepted before.  What is accepted is used from then on, and stays with the sizes at which it ran.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from aotc.graph.values import is_finite
from aotc.sizes.inputs.fixtures import (
    Alternative,
    FixtureInputs,
    Hints,
    alternatives,
    changed_hints,
)
from aotc.sizes.inputs.flow import total
from aotc.spec.codec import Json
from aotc.spec.payload import Value

# Where other values begin; those with which anything runs at all have smaller numbers, and those
# that are searched for to show something larger ones.
_FIRST_NUMBER: Final = 100
# How many are tried at one size, and how many runs without success the search may spend on them.
_MAX_SETS: Final = 20
_MAX_FAILURES: Final = 80
_AS_GIVEN: Final = "values as in your fixtures"
# Up to so many different values of a fixture are taken as all that there are.
_MAX_CHOICES: Final = 8


class ValueSets:
    """Hints by number, and which of them are used at each size."""

    def __init__(self, hints: Hints, first: int = 0) -> None:
        """`hints` of the values with which to begin, which have the number `first`."""
        self.first = first
        self._sets = {first: Alternative("as drawn", hints)}
        # Those that were accepted, the last one first.
        self._accepted = [first]
        self._used: dict[tuple[tuple[str, int], ...], int] = {}
        self._asked = False
        self._failures = 0
        self.first_rejected: dict[str, int] = {}
        """The first sizes at which other values were needed."""
        self.made: dict[Hashable, dict[str, Any]] = {}
        """Inputs that were generated with them, as far as whoever generates them keeps them."""

    def number(self, sizes: Mapping[str, int]) -> int:
        """The number of the values that are used at `sizes`."""
        return self._used.get(_key(sizes), self._accepted[0])

    def hints(self, number: int | None = None) -> Hints:
        """The hints of that number; without one, of those that were accepted last."""
        return self._sets[self._accepted[0] if number is None else number].hints

    def others(self, number: int, candidates: Callable[[], Iterable[Alternative]]) -> Iterator[int]:
        """Numbers of values to try at a size at which those of `number` failed.

        What was accepted elsewhere comes first.  `candidates` gives all others, and is called once.
        """
        yield from (known for known in self._accepted if known != number)
        if not self._asked:
            self._sets |= dict(enumerate(islice(candidates(), _MAX_SETS), _FIRST_NUMBER))
            self._asked = True
        for other in [known for known in self._sets if known not in self._accepted]:
            self._failures += 1
            if self._failures > _MAX_FAILURES:
                return
            yield other

    def accept(self, sizes: Mapping[str, int], number: int) -> None:
        """The model ran at `sizes` with the values of `number`.

        Values that no hints give, such as a fixture's, are used nowhere else.
        """
        if self._used.get(_key(sizes)) == number:
            # A run done before says nothing of what to try next.
            return
        self._used[_key(sizes)] = number
        if number in self._sets and number != self._accepted[0]:
            self.first_rejected = self.first_rejected or dict(sizes)
            self._accepted = [number, *(known for known in self._accepted if known != number)]

    @property
    def tried(self) -> list[str]:
        """What was tried beside the first values, whether it ran or not."""
        return [known.what for number, known in self._sets.items() if number >= _FIRST_NUMBER]

    def is_given(self, sizes: Mapping[str, int]) -> bool:
        """Whether the values at `sizes` are the user's, or drawn from theirs."""
        known = self._sets.get(self.number(sizes))
        return known is None or known.what == _AS_GIVEN

    def told(self) -> str:
        """What was taken beside the first values; empty if they were always accepted."""
        return "; ".join(
            self._sets[known].what for known in reversed(self._accepted) if known != self.first
        )


def _key(sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(sizes.items()))


def values_to_try(
    inputs: Sequence[Value],
    doubtful: Sequence[Value],
    hints: Hints,
    given: Sequence[FixtureInputs],
) -> Iterator[Alternative]:
    """Values that may run where those by `hints` fail, likeliest first.

    Those of the user's fixtures, of all inputs; then for `doubtful` ones, whose values decide sizes
    or positions: up to the size of a dim, plain numbers, and ratios.
    """
    if given:
        known = {value.name: hint for value in inputs if (hint := _seen_hint(value, given))}
        if known:
            yield Alternative(_AS_GIVEN, {**hints, **known})
    numbers = [value for value in doubtful if "float" in value.dtype]
    if numbers:
        yield changed_hints(hints, numbers, {"kind": "uniform", "low": 0.5, "high": 1.5})
    dims: dict[str, Json] = {}
    for other in inputs:
        dims |= {
            d: [other.name, at] for at, d in enumerate(other.shape or ()) if isinstance(d, str)
        }
    for value in doubtful:
        # What a dim counts is seldom the number of the values themselves.
        own = set(value.shape or ())
        for dim in sorted(dims, key=own.__contains__) if "int" in value.dtype else ():
            below: Mapping[str, Json] = {"kind": "index", "low": 1, "high": total(dims[dim], 1)}
            for what, hint in ((f"1 to {dim}", below), (dim, {"kind": "full", "value": dims[dim]})):
                yield Alternative(f"{value.name}: {what}", {**hints, value.name: hint})
    if doubtful:
        yield from alternatives(doubtful, hints)
    for number in (1.0, 0.0, -1.0) if numbers else ():
        yield changed_hints(hints, numbers, {"kind": "full", "value": number})


def _seen_hint(value: Value, given: Sequence[FixtureInputs]) -> Mapping[str, Json]:
    """Values like those that the user's fixtures have: any of a few, or within their bounds."""
    arrays: list[np.ndarray[Any, Any]] = []
    for fixture in given:
        array = fixture.inputs.get(value.name)
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "iuf" or not array.size:
            return {}
        arrays.append(array.reshape(-1))
    if not all(is_finite(array) for array in arrays):
        return {}
    low = min(array.min().item() for array in arrays)
    high = max(array.max().item() for array in arrays)
    distinct = np.unique(np.concatenate([array[: 1 << 16] for array in arrays]))
    if distinct.size <= _MAX_CHOICES:
        return {"kind": "choice", "values": distinct.tolist()}
    if arrays[0].dtype.kind == "f":
        return {"kind": "uniform", "low": low, "high": high}
    return {"kind": "index", "low": low, "high": high + 1}
