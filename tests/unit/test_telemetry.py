"""Counters of a loaded model."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotc.runtime.telemetry import Telemetry, percentile


def test_what_is_counted() -> None:
    telemetry = Telemetry()
    assert telemetry.first_request_seconds is None
    assert telemetry.to_dict()["latency_seconds"] == {}
    telemetry.reject("AOTC-R004")
    telemetry.call(0.5, ("seq",))
    telemetry.call(0.1)
    telemetry.call(0.2, ("batch", "seq"))
    telemetry.reject("AOTC-R001")
    telemetry.reject("AOTC-R004")
    assert telemetry.to_dict() == {
        "calls": 3,
        "out_of_domain": 2,
        "out_of_domain_by_dim": {"batch": 1, "seq": 2},
        "rejects": {"AOTC-R001": 1, "AOTC-R004": 2},
        "first_request_seconds": 0.5,
        "latency_seconds": {"p50": 0.2, "p90": 0.5, "p99": 0.5, "max": 0.5},
    }


def test_percentiles_speak_of_the_latest_calls() -> None:
    telemetry = Telemetry()
    for seconds in [9.0] * 4096 + [1.0] * 4096:
        telemetry.call(seconds)
    assert telemetry.to_dict()["latency_seconds"]["max"] == 1.0
    assert telemetry.to_dict()["calls"] == 8192


def test_threads_lose_no_count() -> None:
    telemetry = Telemetry()

    def work(_: int) -> None:
        for _ in range(500):
            telemetry.call(0.001, ("seq",))
            telemetry.reject("AOTC-R002")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    document = telemetry.to_dict()
    assert (document["calls"], document["out_of_domain"]) == (4000, 4000)
    assert document["rejects"] == {"AOTC-R002": 4000}


@given(st.lists(st.integers(0, 9), min_size=1), st.integers(1, 100))
def test_a_percentile_is_the_nearest_rank(numbers: list[int], hundredths: int) -> None:
    ordered = sorted(float(number) for number in numbers)
    found = percentile(ordered, hundredths / 100)
    at_or_below = sum(value <= found for value in ordered)
    below = sum(value < found for value in ordered)
    assert 100 * at_or_below >= hundredths * len(ordered) - 1e-6
    assert 100 * below < hundredths * len(ordered) + 1e-6
    assert percentile([3.0], 1.0) == pytest.approx(3.0)
