"""Budgets of memory on plans that observations correct, and what is said where the two differ."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.pipeline.memory_budgets import (
    calibration,
    device_workspace,
    judge_memory,
    plan_findings,
    planned_limit,
    with_planned_limits,
)
from aotc.spec.evidence import (
    ArenaStatistics,
    MemoryAtSizes,
    MixedCalls,
    ObservedMemory,
    ResidentMemory,
    VariantEvidence,
)
from aotc.spec.memory import (
    CurvePoint,
    PlannedCapture,
    PlannedDevice,
    PlannedMemory,
    PlannedRun,
)
from aotc.spec.profile import Budgets
from aotc.spec.providers import CAPTURING, ArenaOptions, CudaOptions
from aotc.spec.run_report import Gate
from aotc.spec.variant import GraphCapture, SessionSpec
from aotc.spec.yaml import NO_PLACES

MIB = 1 << 20
CUDA = CAPTURING.ort_name
ARENA = ArenaStatistics(
    in_use=0, max_in_use=0, allocated=0, largest=0, allocations=0, reserves=0, extensions=0
)
LOADED = ResidentMemory(resident=100 * MIB, private=0, shared=0, file_backed=0)


@record
class Lowered:
    """What a limit is made for: of a lowered variant, what `with_planned_limits` reads."""

    providers: tuple[str, ...]
    session: SessionSpec
    plan: Any


@record
class Item:
    """The same of a proven variant."""

    lowered: Lowered
    evidence: VariantEvidence

    @property
    def plan(self) -> Any:
        return self.lowered.plan


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
    found: VariantEvidence, weights: int = 0, graphs: GraphCapture | None = None, **budgets: int
) -> tuple[list[AotcError], list[Gate]]:
    gates: list[Gate] = []
    context = SimpleNamespace(profile=SimpleNamespace(budgets=Budgets(**budgets)), places=NO_PLACES)
    state: Any = SimpleNamespace(context=context, journal=SimpleNamespace(judged=gates.extend))
    lowered = SimpleNamespace(memory=SimpleNamespace(weights_bytes=weights), cuda_graphs=graphs)
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


# The arena of a GPU.


def on_gpu(seen: int, planned: int = 100 * MIB, **device: Any) -> VariantEvidence:
    """Of a variant whose largest calls had `seen` bytes of the GPU's arena in use, of 400 MiB."""
    found = evidence(MIB, on_device=seen, device_bytes=900 * MIB)
    assert found.memory is not None and found.planned is not None
    arena = replace(ARENA, in_use=250 * MIB, allocated=400 * MIB)
    at = tuple(replace(each, device=arena) for each in found.memory.at)
    curve = tuple(
        CurvePoint(sizes={"seq": seq}, bytes=planned * seq // 100) for seq in (10, 50, 100)
    )
    plan = PlannedDevice(
        weights_bytes=250 * MIB,
        at=(run(100, planned),),
        curve=curve,
        **{"exact_bytes": 120 * MIB, "doubling_bytes": 256 * MIB, **device},
    )
    return replace(
        found,
        memory=replace(found.memory, at=at),
        planned=replace(found.planned, device=plan),
    )


def test_what_a_plan_of_the_gpu_lacks_is_taken_from_what_was_observed() -> None:
    assert device_workspace(on_gpu(130 * MIB)) == 30 * MIB
    assert device_workspace(on_gpu(90 * MIB)) == 0
    assert device_workspace(evidence(MIB, on_device=MIB)) == 0


def test_calls_on_a_gpu_are_judged_by_the_calibrated_plan() -> None:
    # One call was observed with 130 MiB; each further one needs as much again.
    found = on_gpu(130 * MIB)
    assert not judged(found, device_memory_bytes=1290 * MIB, concurrency=4)[0]
    (breach,), _ = judged(found, device_memory_bytes=1289 * MIB, concurrency=4)
    assert breach.code == "AOTC-M009"
    assert breach.found == f"{1290 * MIB} bytes with 4 calls at once; it begins at seq=100"
    (breach,), _ = judged(found, device_memory_bytes=1089 * MIB, concurrency=4)
    assert breach.found.endswith("; it begins at seq=50")


def test_what_was_observed_of_a_size_is_not_planned_higher() -> None:
    """Another size needed more beside its plan, which says nothing of this one."""
    found = on_gpu(130 * MIB)
    assert found.memory is not None and found.planned is not None
    assert found.planned.device is not None
    small = replace(found.memory.at[0], fixture="min", device_activation_bytes=80 * MIB)
    plan = replace(found.planned.device, at=(*found.planned.device.at, run(10, 10 * MIB, "min")))
    both = replace(found.planned, device=plan)
    memory = replace(found.memory, at=(*found.memory.at, small))
    found = replace(found, memory=memory, planned=both)
    assert device_workspace(found) == 70 * MIB
    assert not judged(found, device_memory_bytes=900 * MIB)[0]
    # Of a size that was not called, it may be as much.
    unknown = replace(both, device=replace(plan, at=(*plan.at, run(100, 100 * MIB, ""))))
    (breach,), _ = judged(replace(found, planned=unknown), device_memory_bytes=939 * MIB)
    assert breach.found.startswith(f"{940 * MIB} bytes with one call")


@pytest.mark.parametrize(("sessions", "more"), [(1, 2 + 200), (3, 2 + 300 + 60 + 500)])
def test_captured_sizes_count_for_the_budget_of_a_gpu(sessions: int, more: int) -> None:
    """They are in no session that is measured: their inputs, their arenas, and weights of each."""
    held = PlannedCapture(sizes={"seq": 1}, buffers_bytes=MIB, arena_bytes=150 * MIB)
    found = on_gpu(130 * MIB, captures=(held, held), sessions=sessions)
    graphs = GraphCapture(sizes=({"seq": 1}, {"seq": 2}))
    limit = (900 + more) * MIB
    assert not judged(found, graphs=graphs, device_memory_bytes=limit)[0]
    (breach,), _ = judged(found, graphs=graphs, device_memory_bytes=limit - 1)
    assert breach.found.startswith(f"{limit} bytes with one call and 2 captured sizes")
    _, (gate,) = judged(
        evidence(MIB, on_device=MIB, device_bytes=MIB), graphs=graphs, device_memory_bytes=MIB
    )
    assert gate.measured == f"{MIB} bytes with one call, captured sizes not known"


def in_turn(found: VariantEvidence, allocated: int) -> VariantEvidence:
    """With mixed calls, after which the arena on the GPU had `allocated` bytes."""
    mixed = MixedCalls(
        calls=9,
        sizes=3,
        planned_calls=9,
        first_allocated=0,
        last_allocated=0,
        first_in_use=0,
        last_in_use=0,
        last_device_allocated=allocated,
    )
    assert found.memory is not None
    return replace(found, memory=replace(found.memory, mixed=mixed))


def test_a_limit_has_room_for_weights_all_sizes_and_calls_at_once() -> None:
    def limit(found: VariantEvidence, calls: int = 1) -> float:
        planned = planned_limit(found, calls)
        assert isinstance(planned, int)
        assert planned % (16 * MIB) == 0
        return planned / MIB

    exact = on_gpu(130 * MIB, growth="exact")
    # 250 of weights, 150 of which more was observed than planned; a tenth, whole steps of 16.
    assert limit(exact) == 448
    # What the arena takes and what kernels need beside, 120 and 60, is more.
    assert limit(on_gpu(160 * MIB, growth="exact")) == 480
    assert limit(exact, calls=3) == 448 + 288
    assert limit(on_gpu(130 * MIB)) == 592
    # Calls of all sizes in turn were seen to take 200 of one arena.
    assert limit(in_turn(exact, 450 * MIB)) == 496
    held = PlannedCapture(sizes={"seq": 1}, buffers_bytes=MIB, arena_bytes=150 * MIB)
    # Captured sizes of one session keep what each took, and those of several have a limit each.
    assert limit(on_gpu(130 * MIB, growth="exact", captures=(held, held))) == 640
    assert limit(on_gpu(130 * MIB, growth="exact", captures=(held, held), sessions=3)) == 480


def test_without_a_plan_of_the_gpu_there_is_no_limit() -> None:
    assert planned_limit(VariantEvidence(name="v"), 1) == (
        "this host cannot run the variant: a limit is planned where its GPU is"
    )
    assert planned_limit(evidence(MIB), 1) == "no values of the variant are on the GPU"
    uncounted = replace(on_gpu(MIB), memory=ObservedMemory(why_not="no library"))
    assert planned_limit(uncounted, 1) == "no library"


def limited(found: VariantEvidence, **memory: Any) -> tuple[Any, list[AotcError]]:
    """A variant on CUDA with these options of the arena, as packaging gets it."""
    session = SessionSpec(optimization="all", provider_options={CUDA: {"use_tf32": "0"}})
    plan = SimpleNamespace(name="portable", cuda=CudaOptions(memory=ArenaOptions(**memory)))
    lowered = Lowered(providers=(CUDA,), session=session, plan=plan)
    state: Any = SimpleNamespace(
        context=SimpleNamespace(profile=SimpleNamespace(budgets=Budgets()), places=NO_PLACES)
    )
    item: Any = Item(lowered=lowered, evidence=found)
    kept, refused = with_planned_limits([item], state)
    return (kept[0].lowered.session.provider_options[CUDA] if kept else None), refused


def test_a_planned_limit_stands_in_the_session() -> None:
    options, refused = limited(on_gpu(130 * MIB, growth="exact"), limit_bytes="plan")
    assert not refused
    assert options == {"use_tf32": "0", "gpu_mem_limit": str(448 * MIB)}
    assert limited(on_gpu(MIB), limit_bytes=MIB)[0] == {"use_tf32": "0"}


def test_a_limit_that_cannot_be_planned_is_refused() -> None:
    _, (refused,) = limited(evidence(MIB), limit_bytes="plan")
    assert (refused.code, refused.where) == ("AOTC-M013", "variant portable")
    assert refused.found == "no values of the variant are on the GPU"


def test_an_arena_that_takes_much_more_than_its_calls_need_is_a_finding() -> None:
    (found,) = plan_findings(on_gpu(MIB))
    assert (found.code, found.where) == ("AOTC-M014", "variant portable")
    assert found.what == (
        "after calls of all sizes its arena on the GPU has 268.4 MB beside weights, "
        "and 125.8 MB if it grew by what is asked for"
    )
    assert not list(plan_findings(on_gpu(MIB, growth="exact")))
    assert not list(plan_findings(on_gpu(MIB, doubling_bytes=184 * MIB)))
