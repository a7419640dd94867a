"""The first sizes at which a model runs: likely ones, and those that failures speak of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aotc.contract.shapes.dim_range import DimRange
from aotc.probing.sizes.dim_hints import DimHints
from aotc.probing.sizes.likely_sizes import beside, candidates, suggested
from aotc.probing.sizes.trials import Trials

# Runs in search of them, at least.
_RUNS: Final = 400
# How much more than the inputs that are stated the first inputs may take.
_AMPLE: Final = 4
# How many sizes are weighed without a run: of many dims the combinations are without end.
_WEIGHED: Final = 4000
# How many sizes that failures speak of are tried.
_HEARD: Final = 24


def first_sizes(
    trials: Trials,
    dims: Sequence[str],
    hints: DimHints,
    stated: Mapping[str, DimRange],
    seeds: Sequence[Mapping[str, int]],
) -> dict[str, int] | None:
    """Sizes of `dims` that run, with those that follow from them; None where none are found.

    A quarter of all runs is for this.  Nothing is tried whose inputs exceed `max_input_bytes`, but
    what is `stated` to be as large; `_WEIGHED` such are passed over, at most.
    """
    least = dict.fromkeys(dims, 1) | {dim: spec.optimal() for dim, spec in stated.items()}
    bytes_stated = trials.input_bytes(trials.complete(least))
    most = max(trials.limits.max_input_bytes, _AMPLE * bytes_stated)
    limit = trials.limits.max_runs
    last = trials.runs + min(limit, max(_RUNS, limit // 4))
    inner = [dim for dim in dims if dim not in stated and dim not in hints.leading]
    heard = passed = 0
    for sizes in candidates(dims, hints, stated, seeds):
        queue = [sizes]
        while queue:
            tried = queue.pop(0)
            if trials.too_large(tried, most):
                passed += 1
                if passed > _WEIGHED:
                    return None
                continue
            outcome = trials.run(tried)
            if outcome.ok:
                return trials.complete(tried)
            if trials.runs >= last or trials.stop:
                return None
            spoken = list(_spoken(tried, inner, outcome.error)) if heard < _HEARD else []
            heard += len(spoken)
            queue += spoken
    return None


def _spoken(
    failed: Mapping[str, int], inner: Sequence[str], error: str
) -> Iterator[dict[str, int]]:
    """Sizes that the `error` at `failed` speaks of, of `inner` dims that had one size there.

    All of one size have another; or one of them has the size beside its own, as what is joined to
    a token more has, or to a past.
    """
    for size in dict.fromkeys(failed[dim] for dim in inner):
        alike = [dim for dim in inner if failed[dim] == size]
        for other in suggested(error, size):
            yield {**failed, **dict.fromkeys(alike, other)}
        for other in beside(error, size) if len(alike) > 1 else ():
            yield from ({**failed, dim: other} for dim in alike)
