"""The first sizes at which a model runs: likely ones, and those that failures speak of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aotc.contract.shapes.dim_range import DimRange
from aotc.probing.sizes.dim_hints import DimHints
from aotc.probing.sizes.likely_sizes import candidates, mismatched_with, suggested_sizes
from aotc.probing.sizes.trials import Trials

# Runs in search of them, at least.
_MIN_RUNS: Final = 400
# How much more than the inputs that are stated the first inputs may take.
_INPUT_BYTES_FACTOR: Final = 4
# How many sizes are weighed without a run: of many dims the combinations are without end.
_MAX_SKIPPED: Final = 4000
# How many sizes that failures speak of are tried.
_MAX_SUGGESTED: Final = 24


def first_sizes(
    trials: Trials,
    dims: Sequence[str],
    hints: DimHints,
    stated: Mapping[str, DimRange],
    seeds: Sequence[Mapping[str, int]],
) -> dict[str, int] | None:
    """Sizes of `dims` that run, with those that follow from them; None where none are found.

    A quarter of all runs is for this.  Nothing is tried whose inputs exceed `max_input_bytes`, but
    what is `stated` to be as large; `_MAX_SKIPPED` such are passed over, at most.
    """
    smallest = dict.fromkeys(dims, 1) | {dim: spec.optimal() for dim, spec in stated.items()}
    bytes_stated = trials.input_bytes(trials.complete(smallest))
    max_bytes = max(trials.limits.max_input_bytes, _INPUT_BYTES_FACTOR * bytes_stated)
    limit = trials.limits.max_runs
    last = trials.runs + min(limit, max(_MIN_RUNS, limit // 4))
    inner = [dim for dim in dims if dim not in stated and dim not in hints.leading]
    suggestion_count = skipped = 0
    for sizes in candidates(dims, hints, stated, seeds):
        queue = [sizes]
        while queue:
            tried = queue.pop(0)
            if trials.inputs_exceed(tried, max_bytes):
                skipped += 1
                if skipped > _MAX_SKIPPED:
                    return None
                continue
            outcome = trials.run(tried)
            if outcome.ok:
                return trials.complete(tried)
            if trials.runs >= last or trials.stop:
                return None
            suggestions = (
                list(_suggested_sizes(tried, inner, outcome.error))
                if suggestion_count < _MAX_SUGGESTED
                else []
            )
            suggestion_count += len(suggestions)
            queue += suggestions
    return None


def _suggested_sizes(
    failed: Mapping[str, int], inner: Sequence[str], error: str
) -> Iterator[dict[str, int]]:
    """Sizes that the `error` at `failed` speaks of, of `inner` dims that had one size there.

    All of one size have another; or one of them has the size beside its own, as what is joined to
    a token more has, or to a past.
    """
    for size in dict.fromkeys(failed[dim] for dim in inner):
        alike = [dim for dim in inner if failed[dim] == size]
        for other in suggested_sizes(error, size):
            yield {**failed, **dict.fromkeys(alike, other)}
        for other in mismatched_with(error, size) if len(alike) > 1 else ():
            yield from ({**failed, dim: other} for dim in alike)
