"""Answers of equal calls, compared byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aotc.contract.results.build_evidence import DifferingOutput
from aotc.engine.parity import same_bits
from aotc.engine.values import Data
from aotc.records import replace


class RepeatedAnswers:
    """Counts calls whose answers have other bytes than the first, by output.

    `names` are those of the outputs, in the order of the answers.
    """

    def __init__(self, names: Sequence[str], first: Sequence[Data]) -> None:
        self._names = names
        self._first = first
        self._outputs: dict[str, DifferingOutput] = {}
        self.runs = 0
        self.differing_runs = 0

    @property
    def outputs(self) -> tuple[DifferingOutput, ...]:
        """The outputs that differed, in order, each as in the call with most differing values."""
        return tuple(self._outputs[name] for name in self._names if name in self._outputs)

    def repeat(self, call: Callable[[], Sequence[Data]], runs: int) -> None:
        """Compare the answers of `runs` further calls."""
        for _ in range(runs):
            self.add(call())

    def add(self, answers: Sequence[Data]) -> None:
        """Compare the answers of one further call."""
        found = [
            _difference(name, one, other)
            for name, one, other in zip(self._names, self._first, answers, strict=True)
            if not same_bits(one, other)
        ]
        self.runs += 1
        self.differing_runs += bool(found)
        for each in found:
            known = self._outputs.get(each.output, each)
            worst = max(known, each, key=lambda item: item.values)
            errors = [item.max_abs for item in (known, each) if item.max_abs is not None]
            self._outputs[each.output] = replace(worst, max_abs=max(errors, default=None))


def _difference(name: str, one: Data, other: Data) -> DifferingOutput:
    """How two values of one output differ; of sequences and maps only that they do."""
    if not _comparable(one, other):
        return DifferingOutput(output=name, values=1, of=1)
    size = one.itemsize
    # Bytes, not values: a NaN is equal to one with the same bits, and 0 is not -0.
    differ = (
        np.frombuffer(one.tobytes(), np.uint8).reshape(-1, size)
        != np.frombuffer(other.tobytes(), np.uint8).reshape(-1, size)
    ).any(axis=1)
    count = int(np.count_nonzero(differ))
    try:
        with np.errstate(all="ignore"):
            errors = np.abs(
                one.reshape(-1)[differ].astype(np.float64)
                - other.reshape(-1)[differ].astype(np.float64)
            )
        finite = errors[np.isfinite(errors)]
    except (TypeError, ValueError):
        finite = np.empty(0)
    largest = float(finite.max()) if finite.size else None
    return DifferingOutput(output=name, values=count, of=int(one.size), max_abs=largest)


def _comparable(one: Any, other: Any) -> bool:
    return (
        isinstance(one, np.ndarray)
        and isinstance(other, np.ndarray)
        and one.dtype == other.dtype
        and one.dtype.kind != "O"
        and one.shape == other.shape
    )
