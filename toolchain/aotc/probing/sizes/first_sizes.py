"""The first sizes at which a model runs: likely ones, and those that failures suggest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aotc.contract.shapes.dim_range import DimRange
from aotc.probing.sizes.dim_hints import DimHints
from aotc.probing.sizes.likely_sizes import candidates, mismatched_with, suggested_sizes
from aotc.probing.sizes.trials import Trials

# Minimum number of runs for the first sizes.
_MIN_RUNS: Final = 400
# By what factor the first inputs may exceed the stated ones in bytes.
_INPUT_BYTES_FACTOR: Final = 4
# How many sizes may be skipped as too large: many dims have countless combinations.
_MAX_SKIPPED: Final = 4000
# How many sizes that failures suggest are tried.
_MAX_SUGGESTED: Final = 24


def first_sizes(
    trials: Trials,
    dims: Sequence[str],
    hints: DimHints,
    stated: Mapping[str, DimRange],
    seeds: Sequence[Mapping[str, int]],
) -> dict[str, int] | None:
    """Sizes of `dims` that run, with the dims derived from them; None if none are found.

    Uses up to a quarter of all runs.  Sizes whose inputs exceed `max_input_bytes` are skipped,
    unless they are `stated` to be that large; after `_MAX_SKIPPED` of them the search ends.
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
    """Sizes that the `error` at `failed` suggests for the `inner` dims that share a size there.

    Either all of them get another size; or one of them gets the size that does not match its own,
    as a dim that is concatenated with one more token has, or with a past.
    """
    for size in dict.fromkeys(failed[dim] for dim in inner):
        alike = [dim for dim in inner if failed[dim] == size]
        for other in suggested_sizes(error, size):
            yield {**failed, **dict.fromkeys(alike, other)}
        for other in mismatched_with(error, size) if len(alike) > 1 else ():
            yield from ({**failed, dim: other} for dim in alike)
