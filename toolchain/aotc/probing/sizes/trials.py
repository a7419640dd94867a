"""Runs of the original model at given sizes: each combination once, counted, within limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from aotc.contract.profile import ProbeLimits
from aotc.contract.shapes.domain import Relation, Stop
from aotc.records import field, record, replace

# Why a search ended before it had tried everything.
ENDED: Final[Mapping[Stop, str]] = {
    "count": "was ended by probe.max_runs",
    "time": "was ended by probe.seconds",
}


@record(kw_only=False)
class Trial:
    """The outcome of one run; `empty` if some output has no elements."""

    ok: bool
    error: str = ""
    empty: bool = False


class Cost(Protocol):
    """Estimates what one run costs."""

    def __call__(self, sizes: Mapping[str, int]) -> tuple[int, int, float]:
        """Input bytes, activation bytes and floating-point operations of a run at `sizes`."""
        ...


@record(frozen=False, kw_only=False)
class Trials:
    """Runs by sizes of `dims`; dims that `relations` derive are added to each.

    `recall` returns runs that were done before, which take no time.  `input_bytes` counts the bytes
    of all inputs at given sizes.  `stop` tells why no more runs are allowed, `error` is the message
    of the last failure.
    """

    dims: Sequence[str]
    limits: ProbeLimits
    trial: Callable[[Mapping[str, int]], Trial]
    late: Callable[[], bool]
    relations: Sequence[Relation] = ()
    recall: Callable[[Mapping[str, int]], Trial | None] = lambda _: None
    input_bytes: Callable[[Mapping[str, int]], int] = lambda _: 0
    estimate: Cost | None = None
    runs: int = 0
    error: str = ""
    stop: Stop = ""
    _known: dict[tuple[int, ...], Trial] = field(default_factory=dict)

    def complete(self, sizes: Mapping[str, int], found: Sequence[Relation] = ()) -> dict[str, int]:
        """`sizes` with all derived dims, by the relations `found` and then by those stated."""
        result = dict(sizes)
        for relation in (*found, *self.relations):
            result[relation.dim] = relation.value(result)
        return result

    def run(self, sizes: Mapping[str, int]) -> Trial:
        """The outcome at `sizes`; a failure if the relations make a size negative."""
        sizes = self.complete(sizes)
        if min(sizes.values(), default=0) < 0:
            return Trial(ok=False, error="a size would be negative")
        key = tuple(sizes[dim] for dim in self.dims)
        if key not in self._known:
            named = {dim: sizes[dim] for dim in self.dims}
            before = self.recall(named) if self.runs < self.limits.max_runs else None
            if before is None and self.exhausted():
                return Trial(ok=False, error=self.error)
            self.runs += 1
            outcome = before or self.trial(named)
            self._known[key] = outcome
            if not outcome.ok:
                self.error = outcome.error
        return self._known[key]

    def exhausted(self) -> bool:
        """Whether no more runs are allowed."""
        if self.runs >= self.limits.max_runs:
            self.stop = "count"
        elif self.late():
            self.stop = "time"
        return bool(self.stop)

    def allow_more(self, more: int) -> None:
        """Allow up to `more` further runs, to explain a failure."""
        self.limits = replace(self.limits, max_runs=self.runs + more)
        self.stop = ""

    def inputs_exceed(self, sizes: Mapping[str, int], max_bytes: int) -> bool:
        """Whether the inputs at `sizes` would take more than `max_bytes`; none is created."""
        return self.input_bytes(self.complete(sizes)) > max_bytes

    def exceeded_limit(self, sizes: Mapping[str, int], share: float = 1.0) -> Stop:
        """The limit that a run at `sizes` would exceed, or "".

        `share` scales the limits of work and memory.
        """
        if self.inputs_exceed(sizes, self.limits.max_input_bytes):
            return "bytes"
        if self.estimate is None:
            return ""
        _, activations, flops = self.estimate(sizes)
        if activations > self.limits.max_activation_bytes * share:
            return "bytes"
        return "work" if flops > self.limits.max_flops * share else ""
