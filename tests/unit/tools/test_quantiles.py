"""Quantiles that are stated, those that are not, and how samples are thinned."""

from __future__ import annotations

import random

import numpy as np
import pytest

from aotc.tools.bench_comparison import samples_needed, stated_quantiles, thinned


@pytest.mark.parametrize(("share", "count"), [(0.5, 5), (0.9, 29), (0.99, 299)])
def test_the_largest_of_so_many_samples_is_probably_not_below_the_quantile(
    share: float, count: int
) -> None:
    """Wilks: all of n samples are below the quantile with probability share^n."""
    assert samples_needed(share) == count
    assert share**count <= 0.05 < share ** (count - 1)


@pytest.mark.parametrize(
    ("count", "stated", "needed"),
    [
        (1, [], {"p50": 5, "p90": 29, "p99": 299}),
        (5, ["p50"], {"p90": 29, "p99": 299}),
        (298, ["p50", "p90"], {"p99": 299}),
        (299, ["p50", "p90", "p99"], {}),
    ],
)
def test_a_quantile_is_refused_from_too_few_samples(
    count: int, stated: list[str], needed: dict[str, int]
) -> None:
    found, missing = stated_quantiles([float(number) for number in range(count)])
    assert (list(found), missing) == (stated, needed)


def test_quantiles_are_those_of_numpys_inverted_distribution() -> None:
    samples = sorted(random.Random(3).lognormvariate(0, 1) for _ in range(1000))
    found, _ = stated_quantiles(samples)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert found[name] == np.quantile(samples, share, method="inverted_cdf")


@pytest.mark.parametrize("count", [513, 1000, 100_000])
def test_thinned_samples_keep_order_and_median(count: int) -> None:
    kept = thinned([float(number) for number in range(count)])
    assert len(kept) == 512
    assert list(kept) == sorted(set(kept))
    # By less than one of the shares that the samples were divided into.
    assert abs(np.median(kept) - (count - 1) / 2) <= count / 512
    assert abs(np.quantile(kept, 0.99) - 0.99 * count) <= count / 256


def test_few_samples_stay_as_they_are() -> None:
    assert thinned([1.0, 2.0, 3.0]) == (1.0, 2.0, 3.0)
