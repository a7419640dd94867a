"""Quantiles of latencies, and how many samples each of them needs to be stated.

A quantile is the sample of nearest rank: the smallest one with at least that share of all samples
at or below it, the inverse of the empirical distribution function (type 1 of Hyndman and Fan,
Sample Quantiles in Statistical Packages, 1996).  It is stated only from so many samples that the
largest of them is, with 95 % confidence, not below the true quantile.  That fails with probability
share^n for n samples (Wilks, Determination of Sample Sizes for Setting Tolerance Limits, 1941), so
that n >= log(0.05) / log(share): 5 for p50, 29 for p90 and 299 for p99.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from aotc.contract.results.bench_history import MAX_SAMPLES
from aotc.runtime.telemetry import percentile

SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_CONFIDENCE: Final = 0.95


def samples_needed(share: float) -> int:
    """The smallest number of samples from which the quantile of `share` (0 to 1) is stated."""
    return math.ceil(math.log(1 - _CONFIDENCE) / math.log(share))


def stated_quantiles(ordered: Sequence[float]) -> tuple[dict[str, float], dict[str, int]]:
    """p50, p90 and p99 of ascending samples, and the samples needed for those not stated."""
    stated: dict[str, float] = {}
    needed: dict[str, int] = {}
    for name, share in SHARES.items():
        if len(ordered) < samples_needed(share):
            needed[name] = samples_needed(share)
        else:
            stated[name] = percentile(list(ordered), share)
    return stated, needed


def thinned(ordered: Sequence[float], most: int = MAX_SAMPLES) -> tuple[float, ...]:
    """Ascending samples; of more than `most`, the quantiles at the middles of `most` even shares.

    The minimum and the maximum are then left out, and the median stays within one rank of its own.
    """
    count = len(ordered)
    if count <= most:
        return tuple(ordered)
    return tuple(ordered[(2 * index + 1) * count // (2 * most)] for index in range(most))
