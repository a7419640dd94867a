"""Times of warm calls: how many are made, what is kept of them, and which are none to plan with.

No test depends on how quick the machine is: what judges times is given them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from aotc.pipeline import timing
from aotc.pipeline.timing import WarmCalls, main_fixture, spread_of, unsteady_findings
from aotc.session.worker import waited_seconds
from aotc.spec.evidence import Evidence, RunSpread, VariantEvidence

# Longer than the budget of all calls.
ENDLESS = 1e6


def called(
    cold: dict[str, float], repeated: dict[str, int] | None = None, takes: float = 0.0
) -> tuple[Any, Any]:
    """How often each fixture was called, in that order, and what was measured."""
    counts: dict[str, int] = {}

    def call_of(fixture: str) -> Callable[[], list[Any]]:
        def call() -> list[Any]:
            counts[fixture] = counts.get(fixture, 0) + 1
            time.sleep(takes)
            return []

        return call

    warm = WarmCalls()
    warm.call_all(cold, call_of, repeated or {})
    return counts, warm.measured()


def test_short_calls_are_made_often_and_the_first_is_not_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing, "_TIMED_SECONDS", ENDLESS)
    counts, measured = called({"max": 1e-6, "opt": 1e-6})
    assert list(counts) == ["opt", "max"]
    spreads = measured["run_spread"]
    assert 5 <= spreads["opt"]["calls"] == counts["opt"] - 1 <= 50
    assert 3 <= spreads["max"]["calls"] == counts["max"] - 1 <= 20
    assert sorted(measured["run_seconds"]) == ["max", "opt"]


def test_a_call_that_takes_long_is_made_once_and_of_the_main_fixture_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seconds in ("_TIMED_SECONDS", "_FEW_SECONDS"):
        monkeypatch.setattr(timing, seconds, 0.001)
    cold = {"min": ENDLESS, "opt": ENDLESS, "max": ENDLESS}
    counts, measured = called(cold, takes=0.002)
    assert counts == {"opt": 1}
    assert list(measured["run_seconds"]) == ["opt"]


def test_the_main_fixture_stays_that_where_it_was_called_before() -> None:
    counts: dict[str, int] = {}

    def call_of(fixture: str) -> Callable[[], list[Any]]:
        def call() -> list[Any]:
            counts[fixture] = counts.get(fixture, 0) + 1
            return []

        return call

    warm = WarmCalls()
    warm.call_all({"opt": ENDLESS}, call_of, {})
    before = dict(counts)
    warm.call_all({"max": ENDLESS, "min": ENDLESS}, call_of, {})
    assert list(before) == ["opt"]
    assert counts == before


def test_a_few_calls_are_made_that_do_not_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_TIMED_SECONDS", 0.001)
    monkeypatch.setattr(timing, "_FEW_SECONDS", ENDLESS)
    assert called({"min": ENDLESS, "opt": ENDLESS}, takes=0.002)[0] == {"opt": 3}


def test_calls_that_are_repeated_anyway_are_not_made_twice() -> None:
    counts, _ = called({"opt": ENDLESS, "max": ENDLESS}, {"opt": 4})
    assert counts == {}
    counts, _ = called({"opt": 1e-6}, {"opt": 49})
    assert counts == {"opt": 2}


def test_no_call_is_timed_once_another_session_is_open() -> None:
    warm = WarmCalls()
    call = warm.timed("opt", lambda: [])
    assert [call(), call()] == [[], []]
    warm.ended = True
    call()
    assert warm.measured()["run_spread"]["opt"]["calls"] == 2


def test_without_any_call_there_is_no_time() -> None:
    assert WarmCalls().measured()["run_seconds"] == {}


@pytest.mark.parametrize(
    ("names", "main"),
    [
        (["min", "opt", "max"], "opt"),
        (["sample0", "opt-sampled"], "opt-sampled"),
        (["user0", "sample0"], "user0"),
    ],
)
def test_the_main_fixture(names: list[str], main: str) -> None:
    assert main_fixture(names) == main


def test_the_quantiles_of_calls() -> None:
    found = spread_of([n / 100 for n in range(100, 0, -1)])
    assert found == RunSpread(
        calls=100,
        tenth_seconds=0.1,
        lower_seconds=0.25,
        upper_seconds=0.75,
        ninetieth_seconds=0.9,
    )
    assert found.share_of(0.5) == 1.0
    assert found.share_of(0.0) is None
    assert spread_of([0.1, 0.3]).share_of(0.2) is None


def measured(
    name: str = "portable",
    *,
    median: float = 1e-3,
    apart: float = 0.1,
    calls: int = 50,
    waited: float | None = 0.0,
) -> VariantEvidence:
    """A variant whose quartiles are `apart` by that share of the median."""
    spread = RunSpread(
        calls=calls,
        tenth_seconds=median * (1 - apart),
        lower_seconds=median * (1 - apart / 2),
        upper_seconds=median * (1 + apart / 2),
        ninetieth_seconds=median * (1 + apart),
    )
    return VariantEvidence(
        name=name, run_seconds={"opt": median}, run_spread={"opt": spread}, waited_share=waited
    )


def told(*variants: VariantEvidence) -> list[tuple[str, str]]:
    evidence = Evidence(built_at="", stages={}, variants=variants, host={})
    found = unsteady_findings(evidence)
    assert {each.code for each in found} <= {"AOTC-N055"}
    return [(each.where, each.what) for each in found]


def test_a_steady_machine_is_not_told_of() -> None:
    for waited, apart in product((0.0, 0.05, None), (0.0, 0.3)):
        assert told(measured(waited=waited, apart=apart)) == []
    # Of calls as short, or as few, the quartiles say nothing.
    assert told(measured(median=2e-5, apart=1.0)) == []
    assert told(measured(calls=4, apart=1.0)) == []
    # Of an artifact of an earlier release nothing is known.
    assert told(VariantEvidence(name="portable", run_seconds={"opt": 1.0})) == []


def test_a_proof_that_waited_was_not_steady_however_equal_its_calls() -> None:
    assert told(measured(waited=0.734, apart=0.0)) == [
        ("variant portable", "the proof waited for a CPU for 73% of its time")
    ]


def test_calls_that_are_far_apart_are_not_steady() -> None:
    for waited in (0.0, None):
        assert told(measured(apart=0.8, waited=waited)) == [
            (
                "variant portable",
                "half of 50 equal calls took 600 us to 1.40 ms, the others less or more",
            )
        ]


def test_one_finding_tells_of_all_variants() -> None:
    variants = [measured("a"), measured("b", waited=0.5), measured("c", waited=0.6)]
    ((where, what),) = told(*variants)
    assert where == "variant b"
    assert what == "the proof waited for a CPU for 50% of its time; and 1 more variant likewise"
    ((_, what),) = told(*variants, measured("d", waited=0.6))
    assert what.endswith("; and 2 more variants likewise")


def test_waiting_is_counted_where_the_system_counts_it() -> None:
    before, after = waited_seconds(), waited_seconds()
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert 0.0 <= before <= after
