"""Counters of a loaded model."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from aotc.runtime.listener import LoadedModel, LoadedVariant
from aotc.runtime.telemetry import Telemetry, percentile
from aotc.spec.codec import decode
from aotc.spec.json_schema import schema_of
from aotc.spec.traffic import TelemetryReport, TransferTelemetry


def test_what_is_counted() -> None:
    telemetry = Telemetry(["small", "large"])
    assert telemetry.first_call_seconds is None
    assert telemetry.to_dict()["latency_seconds"] == {}
    telemetry.reject("AOTC-R004", "dim seq")
    telemetry.call(0.5, ("seq",), variant="small", cause="outside", given=10)
    telemetry.call(0.1, variant="small", cause="padded", given=6, added=2)
    telemetry.call(0.2, ("batch", "seq"), variant="large", cause="outside", given=30)
    telemetry.reject("AOTC-R001")
    telemetry.reject("AOTC-R004", "dim batch")
    found = telemetry.to_dict()
    variants = found.pop("variants")
    assert found == {
        "schema": "aotc.telemetry/1",
        "calls": 3,
        "out_of_domain": 2,
        "out_of_domain_by_dim": {"batch": 1, "seq": 2},
        "refusals": {"AOTC-R001": 1, "AOTC-R004": 2},
        "refusals_by_place": [
            {"code": "AOTC-R001", "where": "", "calls": 1},
            {"code": "AOTC-R004", "where": "dim batch", "calls": 1},
            {"code": "AOTC-R004", "where": "dim seq", "calls": 1},
        ],
        "routes": {"outside": 2, "padded": 1},
        "input_elements": 46,
        "padding_elements": 2,
        "padding_share": 2 / 48,
        "first_call_seconds": 0.5,
        "latency_seconds": {"p50": 0.2, "p90": 0.5, "p99": 0.5, "max": 0.5},
        "fallbacks": {},
        "captures": 0,
        "memory_failures": {},
    }
    assert variants["small"] == {
        "calls": 2,
        "routes": {"outside": 1, "padded": 1},
        "input_elements": 16,
        "padding_elements": 2,
        "padding_share": 2 / 18,
        "first_call_seconds": 0.5,
        "first_call_delta_seconds": 0.4,
        "total_seconds": 0.6,
        "latency_seconds": {"p50": 0.1, "p90": 0.5, "p99": 0.5, "max": 0.5},
        "fallbacks": {},
        "captures": 0,
        "memory_failures": {},
        "transfers": {
            "to_device_bytes": 0,
            "from_device_bytes": 0,
            "timed_calls": 0,
            "timed_bytes": 0,
            "timed_seconds": 0.0,
        },
        "nodes": {},
        "misplaced_nodes": 0,
    }
    assert variants["large"]["calls"] == 1
    json.dumps(variants, allow_nan=False)


def test_what_did_not_run_as_preferred_is_counted() -> None:
    telemetry = Telemetry(["small", "large"])
    nodes = {"CPUExecutionProvider": 3, "CUDAExecutionProvider": 4}
    small = LoadedVariant("small", "CUDAExecutionProvider", "keep", nodes, 3, ("placement",))
    large = LoadedVariant("large", "CUDAExecutionProvider", "keep", {}, 0, ())
    telemetry.begin(LoadedModel("toy", "ab", "", "degraded", [small, large]))
    telemetry.call(0.1, variant="small", missed_graph=True)
    telemetry.call(0.1, variant="small")
    telemetry.call(0.1, variant="large", missed_graph=True)
    telemetry.call(0.1, variant="large")
    telemetry.capture("large")
    found = telemetry.snapshot()
    assert (found.fallbacks, found.captures) == ({"graph": 2, "placement": 2}, 1)
    one, other = found.variants["small"], found.variants["large"]
    assert (one.fallbacks, one.captures) == ({"graph": 1, "placement": 2}, 0)
    assert (one.nodes, one.misplaced_nodes) == (nodes, 3)
    assert (other.fallbacks, other.captures) == ({"graph": 1}, 1)


def test_a_lack_of_memory_and_copies_are_counted_by_variant() -> None:
    telemetry = Telemetry(["small", "large"])
    telemetry.reject("AOTC-M004", "cuda device 0")
    telemetry.lack_memory("AOTC-M004", "large")
    telemetry.lack_memory("AOTC-R057", "large")
    # Of a call that was not routed yet.
    telemetry.lack_memory("AOTC-M004")
    telemetry.call(0.1, variant="small", copied=(100, 7))
    telemetry.call(0.1, variant="small", copied=(50, 7))
    telemetry.time_copies("small", 57, 0.25)
    found = telemetry.snapshot()
    assert found.memory_failures == {"AOTC-M004": 2, "AOTC-R057": 1}
    assert found.refusals == {"AOTC-M004": 1}
    assert found.variants["large"].memory_failures == {"AOTC-M004": 1, "AOTC-R057": 1}
    assert found.variants["small"].memory_failures == {}
    assert found.variants["small"].transfers == TransferTelemetry(
        to_device_bytes=150, from_device_bytes=14, timed_calls=1, timed_bytes=57, timed_seconds=0.25
    )
    assert found.variants["large"].transfers == TransferTelemetry()


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
    assert document["refusals"] == {"AOTC-R002": 4000}


@given(st.lists(st.integers(0, 9), min_size=1), st.integers(1, 100))
def test_a_percentile_is_the_nearest_rank(numbers: list[int], hundredths: int) -> None:
    ordered = sorted(float(number) for number in numbers)
    found = percentile(ordered, hundredths / 100)
    at_or_below = sum(value <= found for value in ordered)
    below = sum(value < found for value in ordered)
    assert 100 * at_or_below >= hundredths * len(ordered) - 1e-6
    assert 100 * below < hundredths * len(ordered) + 1e-6
    assert percentile([3.0], 1.0) == pytest.approx(3.0)


def test_the_counters_have_a_schema() -> None:
    telemetry = Telemetry(["small", "large"])
    telemetry.call(0.5, ("seq",), variant="small", cause="outside", given=10)
    telemetry.reject("AOTC-R004", "dim batch")
    found = json.loads(json.dumps(telemetry.to_dict()))
    Draft202012Validator(schema_of(TelemetryReport)).validate(found)
    assert decode(TelemetryReport, found) == telemetry.snapshot()
