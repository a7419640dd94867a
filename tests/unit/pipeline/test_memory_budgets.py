"""Budgets of memory on plans that observations correct, and what is said where the two differ."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.pipeline.memory_budgets import calibration, judge_memory, plan_findings
from aotc.spec.evidence import (
    ArenaStatistics,
    MemoryAtSizes,
    ObservedMemory,
    ResidentMemory,
    VariantEvidence,
)
from aotc.spec.memory import CurvePoint, PlannedMemory, PlannedRun
from aotc.spec.profile import Budgets
from aotc.spec.run_report import Gate
from aotc.spec.yaml import NO_PLACES

MIB = 1 << 20
ARENA = ArenaStatistics(
    in_use=0, max_in_use=0, allocated=0, largest=0, allocations=0, reserves=0, extensions=0
)
LOADED = ResidentMemory(resident=100 * MIB, private=0, shared=0, file_backed=0)


def run(seq: int, peak: int, fixture: str = "max") -> PlannedRun:
    return PlannedRun(
        sizes={"seq": seq},
        fixture=fixture,
        live_bytes=peak,
        asked_bytes=peak,
        buffer_bytes=peak,
        first_bytes=peak,
        later_bytes=peak,
        arena_bytes=peak,
    )


def evidence(observed: int, planned: int = 10 * MIB, **more: Any) -> VariantEvidence:
    """Of a variant whose calls of the largest size had `observed` bytes in use."""
    curve = tuple(
        CurvePoint(sizes={"seq": seq}, bytes=planned * seq // 100) for seq in (10, 50, 100)
    )
    at = MemoryAtSizes(
        fixture="max",
        sizes={"seq": 100},
        activation_bytes=observed,
        first_bytes=observed,
        output_bytes=0,
        loaded=ARENA,
        arena=ARENA,
        device_activation_bytes=more.pop("on_device", None),
    )
    return VariantEvidence(
        name="portable",
        memory=ObservedMemory(at=(at,), after_load=LOADED),
        planned=PlannedMemory(at=(run(100, planned),), curve=curve),
        **more,
    )


def judged(
    found: VariantEvidence, weights: int = 0, **budgets: int
) -> tuple[list[AotcError], list[Gate]]:
    gates: list[Gate] = []
    context = SimpleNamespace(profile=SimpleNamespace(budgets=Budgets(**budgets)), places=NO_PLACES)
    state: Any = SimpleNamespace(context=context, journal=SimpleNamespace(judged=gates.extend))
    lowered = SimpleNamespace(memory=SimpleNamespace(weights_bytes=weights))
    item: Any = SimpleNamespace(evidence=found, lowered=lowered)
    return judge_memory([item], state), gates


def test_a_plan_is_never_corrected_downwards() -> None:
    assert calibration(evidence(8 * MIB)) == 1.0
    assert calibration(evidence(15 * MIB)) == 1.5
    assert calibration(VariantEvidence(name="v")) == 1.0


def test_a_budget_is_judged_with_so_many_calls_at_once() -> None:
    breaches, gates = judged(evidence(10 * MIB), peak_memory_bytes=141 * MIB, concurrency=4)
    assert not breaches
    assert [(gate.name, gate.status) for gate in gates] == [
        ("budgets.peak_memory_bytes, planned", "passed")
    ]
    (breach,), _ = judged(evidence(10 * MIB), peak_memory_bytes=139 * MIB, concurrency=4)
    assert (breach.code, breach.where) == ("AOTC-M008", "variant portable")
    assert breach.what == "planned memory exceeds its budget"
    assert breach.expected == f"<= {139 * MIB} bytes"
    assert breach.found == (
        f"{140 * MIB} bytes planned with 4 calls at once of seq=100; it begins at seq=100"
    )


def test_the_size_at_which_a_budget_is_exceeded_is_told() -> None:
    (breach,), _ = judged(evidence(10 * MIB), peak_memory_bytes=103 * MIB)
    assert breach.found.endswith("with one call of seq=100; it begins at seq=50")


def test_what_was_observed_corrects_the_plan() -> None:
    (breach,), _ = judged(evidence(15 * MIB), peak_memory_bytes=114 * MIB)
    assert breach.found.startswith(f"{115 * MIB} bytes planned")


def test_what_the_arena_keeps_beside_calls_counts() -> None:
    found = evidence(10 * MIB)
    assert found.memory is not None
    grown = replace(LOADED, resident=125 * MIB)
    found = replace(found, memory=replace(found.memory, after_largest=grown))
    # A process that was seen to take 125 MiB with one call does not take 110 MiB.
    (breach,), _ = judged(found, peak_memory_bytes=154 * MIB, concurrency=4)
    assert breach.found.startswith(f"{155 * MIB} bytes planned")
    assert not judged(found, peak_memory_bytes=155 * MIB, concurrency=4)[0]


def test_one_call_that_was_measured_is_judged_by_that_alone() -> None:
    found = evidence(10 * MIB, peak_memory_bytes=104 * MIB)
    assert judged(found, peak_memory_bytes=105 * MIB) == ([], [])


def test_calls_at_once_of_which_nothing_is_known_are_not_judged_in_silence() -> None:
    why = "OpenVINO has memory of its own, which ONNX Runtime does not count"
    found = VariantEvidence(
        name="v",
        memory=ObservedMemory(why_not=why, elsewhere=True),
        planned=PlannedMemory(why_not="no nodes of the CPU provider", elsewhere=True),
        device_bytes=MIB,
    )
    breaches, gates = judged(found, peak_memory_bytes=1, device_memory_bytes=2 * MIB, concurrency=4)
    assert not breaches
    assert [(gate.name, gate.status) for gate in gates] == [
        ("budgets.peak_memory_bytes, planned", "not-judged"),
        ("budgets.device_memory_bytes", "not-judged"),
    ]
    assert gates[0].measured == "not known of 4 calls at once: no nodes of the CPU provider"
    uncounted = replace(evidence(MIB), memory=ObservedMemory(why_not="no library"))
    (gate,) = judged(uncounted, peak_memory_bytes=1, concurrency=2)[1]
    assert (gate.status, gate.measured) == (
        "not-judged",
        "not known of 2 calls at once: no library",
    )


def test_without_a_budget_or_a_plan_nothing_is_judged() -> None:
    assert judged(evidence(10 * MIB), concurrency=100) == ([], [])
    assert judged(VariantEvidence(name="v"), peak_memory_bytes=1) == ([], [])


def test_a_gpu_takes_what_it_took_and_the_calls_beside() -> None:
    found = evidence(MIB, device_bytes=500 * MIB, on_device=50 * MIB)
    assert not judged(found, device_memory_bytes=650 * MIB, concurrency=4)[0]
    (breach,), _ = judged(found, device_memory_bytes=649 * MIB, concurrency=4)
    assert breach.code == "AOTC-M009"
    assert breach.found == f"{650 * MIB} bytes with 4 calls at once"
    # On the CPU there is nothing to judge.
    assert judged(evidence(MIB), device_memory_bytes=1) == ([], [])


def test_a_budget_below_the_weights_can_be_met_by_no_size() -> None:
    found = evidence(MIB, device_bytes=500 * MIB)
    (breach,), _ = judged(found, 200 * MIB, device_memory_bytes=100 * MIB)
    assert (breach.code, breach.found) == ("AOTC-M012", f"weights of {200 * MIB} bytes")


@pytest.mark.parametrize(
    ("observed", "told"),
    [
        (10 * MIB, []),
        (11 * MIB, []),
        (12 * MIB, ["10.5 MB at seq=100, where 12.6 MB were observed"]),
    ],
)
def test_a_plan_that_is_too_low_is_a_finding(observed: int, told: list[str]) -> None:
    found = list(plan_findings(evidence(observed)))
    assert [(each.code, each.what) for each in found] == [("AOTC-M010", text) for text in told]


def test_no_plan_of_what_the_cpu_runs_is_a_finding() -> None:
    none = PlannedMemory(why_not="the profile of the session does not hold all of its runs")
    (found,) = plan_findings(VariantEvidence(name="v", planned=none))
    assert (found.code, found.what, found.where) == ("AOTC-M011", none.why_not, "variant v")
    elsewhere = PlannedMemory(why_not="another provider", elsewhere=True)
    assert not list(plan_findings(VariantEvidence(name="v", planned=elsewhere)))
