"""Budgets of memory, judged on plans that observations correct; and how the two compare.

A limit of the arena on a GPU is made of such a plan too, where a profile wants that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.base.text import size
from aotc.graph.partition.budgets import Judged
from aotc.pipeline.context import BuildState
from aotc.pipeline.gates import judge_together
from aotc.pipeline.lower import unplanned_limit
from aotc.pipeline.types import ProvenModel
from aotc.spec.evidence import ObservedMemory, VariantEvidence
from aotc.spec.memory import PlannedDevice, PlannedMemory, PlannedRun
from aotc.spec.payload import Finding
from aotc.spec.profile import Budgets
from aotc.spec.providers import ARENA_LIMIT, CAPTURING
from aotc.spec.run_report import Gate
from aotc.spec.yaml import DocumentPlaces

# How far a plan may be below what was observed before it is said: a share, or bytes if more.
_SHARE: Final = 0.15
_BYTES: Final = 1 << 20
# What a limit has above the plan, and what it is a multiple of.
_ROOM: Final = 1.1
_STEP: Final = 16 << 20
# What an arena may take more than it needs to, as a factor and in bytes, before it is said.
_MORE: Final = 1.25
_MORE_BYTES: Final = 64 << 20


def plan_findings(variant: VariantEvidence) -> Iterator[Finding]:
    """AOTC-M011 where a graph of the CPU provider has no plan; M010 where one is too low."""
    where = f"variant {variant.name}"
    if variant.planned is None:
        return
    if variant.planned.why_not and not variant.planned.elsewhere:
        yield Finding(code="AOTC-M011", what=variant.planned.why_not, where=where)
    for run, observed in observed_runs(variant):
        below = observed - run.peak_bytes
        if below > max(_BYTES, _SHARE * observed):
            what = f"{size(run.peak_bytes)} at {_sizes(run.sizes)}, where {size(observed)} "
            yield Finding(code="AOTC-M010", what=what + "were observed", where=where)
    plan = variant.planned.device
    if plan is not None and plan.growth == "doubling" and plan.captures == ():
        most, need = plan.doubling_bytes, plan.exact_bytes
        if most > max(_MORE * need, need + _MORE_BYTES):
            what = f"after calls of all sizes its arena on the GPU has {size(most)} beside weights"
            what += f", and {size(need)} if it grew by what is asked for"
            yield Finding(code="AOTC-M014", what=what, where=where)


def observed_runs(variant: VariantEvidence) -> list[tuple[PlannedRun, int]]:
    """What is planned for each size that was observed, with the bytes that were in use there."""
    if variant.planned is None or variant.memory is None:
        return []
    observed = {found.fixture: found.activation_bytes for found in variant.memory.at}
    return [(run, observed[run.fixture]) for run in variant.planned.at if run.fixture in observed]


def device_workspace(variant: VariantEvidence) -> int:
    """The most that was observed of a GPU's arena above its plan at a size, in bytes.

    That is what kernels need while they run, which no plan has.
    """
    device = variant.planned.device if variant.planned is not None else None
    if device is None or variant.memory is None:
        return 0
    planned = {run.fixture: run.peak_bytes for run in device.at}
    seen = ((at.device_activation_bytes or 0, planned.get(at.fixture)) for at in variant.memory.at)
    return max([0, *(most - plan for most, plan in seen if plan is not None)])


def captured_bytes(variant: VariantEvidence) -> int:
    """What captured sizes take of a GPU beside a session that ran all sizes, in bytes, by its plan.

    In one session they have the arena that calls made, as far as that goes.
    """
    device = variant.planned.device if variant.planned is not None else None
    if device is None or not device.captures:
        return 0
    arenas = sum(each.arena_bytes for each in device.captures)
    if device.sessions == 1:
        arenas = max(arenas - max(run.arena_bytes for run in device.at), 0)
    else:
        arenas += len(device.captures) * device_workspace(variant)
        arenas += (device.sessions - 1) * device.weights_bytes
    return arenas + sum(each.buffers_bytes for each in device.captures)


def with_planned_limits(
    proven: Sequence[ProvenModel], state: BuildState
) -> tuple[list[ProvenModel], list[AotcError]]:
    """The same variants, those with the limit of a GPU's arena whose profile wants the plan's.

    AOTC-M013 for each of which there is no such plan.
    """
    found, refused = [], []
    for item in proven:
        lowered = item.lowered
        wanted = lowered.plan.cuda.memory.limit_bytes == "plan"
        if not wanted or CAPTURING.ort_name not in lowered.providers:
            found.append(item)
            continue
        limit = planned_limit(item.evidence, state.context.profile.budgets.concurrency)
        if isinstance(limit, str):
            refused.append(unplanned_limit(item.plan.name, limit, state.context.places))
            continue
        options = dict(lowered.session.provider_options)
        own = {**options.get(CAPTURING.ort_name, {}), ARENA_LIMIT: str(limit)}
        session = replace(lowered.session, provider_options={**options, CAPTURING.ort_name: own})
        found.append(replace(item, lowered=replace(lowered, session=session)))
    return found, refused


def planned_limit(variant: VariantEvidence, calls: int) -> int | str:
    """Bytes for a session's arena on the GPU with so many calls at once; or why there are none.

    Weights, what calls of all sizes leave taken, and the largest once more for each further call;
    a tenth above that, for what is in use in other places.
    """
    plan, memory = variant.planned, variant.memory
    if plan is None or memory is None:
        return "this host cannot run the variant: a limit is planned where its GPU is"
    if plan.device is None or memory.why_not:
        return plan.why_not or memory.why_not or "no values of the variant are on the GPU"
    device, workspace = plan.device, device_workspace(variant)
    taken = [at.device.allocated - at.device.in_use for at in memory.at if at.device is not None]
    weights = max((at.device.in_use for at in memory.at if at.device is not None), default=0)
    if memory.mixed is not None and memory.mixed.last_device_allocated is not None:
        taken.append(memory.mixed.last_device_allocated - weights)
    held = device.exact_bytes if device.growth == "exact" else device.doubling_bytes
    captured = [each.arena_bytes for each in device.captures]
    captures = sum(captured) if device.sessions == 1 else max(captured, default=0)
    each = max(run.peak_bytes for run in device.at) + workspace
    held = max([held + workspace, captures + workspace, *taken]) + (calls - 1) * each
    return -(-round(_ROOM * (weights + held)) // _STEP) * _STEP


def calibration(variant: VariantEvidence) -> float:
    """The factor, at least 1, that brings a plan to what was observed at each size."""
    runs = observed_runs(variant)
    return max([1.0, *(seen / run.peak_bytes for run, seen in runs if run.peak_bytes)])


def judge_memory(proven: Sequence[ProvenModel], state: BuildState) -> list[AotcError]:
    """Judge what each variant takes with `concurrency` calls of its largest size at once.

    AOTC-M008 for the memory of the process; M009 for that of a GPU, M012 if its budget is below the
    weights alone.
    """
    budgets, places = state.context.profile.budgets, state.context.places
    found = []
    for item in proven:
        judged = [
            each
            for each in (
                _process(item.evidence, budgets, places),
                _device(item, budgets, places),
            )
            if each is not None
        ]
        breach = judge_together(judged, state.journal)
        if breach is not None:
            found.append(breach)
    return found


def room_for_call(state: BuildState, observed: ObservedMemory | None) -> int | None:
    """What a budget of memory leaves to each of the calls at once; None: there is no limit."""
    budgets = state.context.profile.budgets
    held = _held(observed)
    if budgets.peak_memory_bytes is None or held is None:
        return None
    return max(budgets.peak_memory_bytes - held, 0) // budgets.concurrency


def process_bytes(variant: VariantEvidence, peak: int, calls: int) -> int | None:
    """What a process takes with so many calls at once, each with the planned `peak`.

    It is never less than it was seen to take after calls of the largest size.
    """
    held = _held(variant.memory)
    if variant.planned is None or held is None:
        return None
    return held + round(calls * calibration(variant) * peak)


def _held(observed: ObservedMemory | None) -> int | None:
    """What a process holds beside what calls have in use at once; None: not known.

    Once it is loaded, or more: an arena keeps what the first calls of a size touched, and later
    ones with their pattern take other places of it.
    """
    if observed is None or observed.after_load is None:
        return None
    held = observed.after_load.resident
    if observed.after_largest is not None:
        used = max((found.activation_bytes for found in observed.at), default=0)
        held = max(held, observed.after_largest.resident - used)
    return held


def _process(variant: VariantEvidence, budgets: Budgets, places: DocumentPlaces) -> Judged | None:
    limit, calls, plan = budgets.peak_memory_bytes, budgets.concurrency, variant.planned
    if limit is None:
        return None
    largest = max(plan.at, key=lambda run: run.peak_bytes, default=None) if plan else None
    taken = process_bytes(variant, largest.peak_bytes, calls) if largest else None
    if plan is None or largest is None or taken is None:
        return _not_judged(variant, calls, "peak_memory_bytes", limit, places)
    if calls == 1 and (taken <= limit or (variant.peak_memory_bytes and largest.fixture)):
        # The peak that was measured has a gate of its own.
        return None
    at = f"{taken} bytes planned with {_calls(calls)} of {_sizes(largest.sizes)}"
    if taken > limit:
        at += _begins(variant, plan, limit, calls)
    return _judged(
        "AOTC-M008",
        "planned memory exceeds its budget",
        "peak_memory_bytes",
        variant,
        limit,
        taken,
        at,
        places,
    )


def _begins(variant: VariantEvidence, plan: PlannedMemory, limit: int, calls: int) -> str:
    """At which size between the smallest and the largest a budget is exceeded first."""
    for point in plan.curve:
        taken = process_bytes(variant, point.bytes, calls)
        if taken is not None and taken > limit:
            return f"; it begins at {_sizes(point.sizes)}"
    return ""


def _device(item: ProvenModel, budgets: Budgets, places: DocumentPlaces) -> Judged | None:
    variant, limit, calls = item.evidence, budgets.device_memory_bytes, budgets.concurrency
    if limit is None or variant.device_bytes is None:
        return None
    weights = item.lowered.memory.weights_bytes
    if limit < weights:
        return _judged(
            "AOTC-M012",
            "a memory budget is below the weights",
            "device_memory_bytes",
            variant,
            limit,
            weights,
            f"weights of {weights} bytes",
            places,
        )
    at = variant.memory.at if variant.memory is not None else ()
    seen = max((found.device_activation_bytes or 0 for found in at), default=0)
    plan = variant.planned.device if variant.planned is not None else None
    known = {found.fixture for found in at if found.device_activation_bytes is not None}
    planned = [
        run.peak_bytes + device_workspace(variant)
        for run in (plan.at if plan is not None else ())
        if run.fixture not in known
    ]
    each = max([seen, *planned])
    if calls > 1 and not each and variant.device_bytes <= limit:
        return _not_judged(variant, calls, "device_memory_bytes", limit, places)
    # What was taken has one call of the largest size that was observed, and no captured size.
    held = variant.device_bytes + captured_bytes(variant)
    taken = held + calls * each - seen
    text = f"{taken} bytes with {_calls(calls)}"
    if item.lowered.cuda_graphs is not None:
        captured = len(plan.captures) if plan is not None else 0
        text += f" and {captured} captured sizes" if captured else ", captured sizes not known"
    if taken > limit and plan is not None:
        text += _begins_there(variant, plan, limit - held + seen, calls)
    return _judged(
        "AOTC-M009",
        "device memory exceeds its budget",
        "device_memory_bytes",
        variant,
        limit,
        taken,
        text,
        places,
    )


def _begins_there(variant: VariantEvidence, plan: PlannedDevice, room: int, calls: int) -> str:
    """At which size calls take more than `room`, in bytes, of the GPU first."""
    for point in plan.curve:
        if calls * (point.bytes + device_workspace(variant)) > room:
            return f"; it begins at {_sizes(point.sizes)}"
    return ""


def _judged(
    code: str,
    what: str,
    field: str,
    variant: VariantEvidence,
    limit: int,
    taken: int,
    found: str,
    places: DocumentPlaces,
) -> Judged:
    where, place = f"variant {variant.name}", places.of(f"budgets.{field}")
    expected = f"<= {limit} bytes"
    gate = Gate(
        name=_gate_name(field),
        subject=where,
        status="failed" if taken > limit else "passed",
        limit=expected,
        measured=found,
        place=place,
    )
    breaches = []
    if taken > limit:
        breaches.append(
            AotcError(code, what, where=where, expected=expected, found=found, place=place)
        )
    return Judged(gates=(gate,), breaches=tuple(breaches))


def _not_judged(
    variant: VariantEvidence, calls: int, field: str, limit: int, places: DocumentPlaces
) -> Judged | None:
    """The gate of several calls at once of which nothing is known; one call was measured."""
    if calls == 1:
        return None
    memory, plan = variant.memory, variant.planned
    why = (plan.why_not if plan else "") or (memory.why_not if memory else "")
    gate = Gate(
        name=_gate_name(field),
        subject=f"variant {variant.name}",
        status="not-judged",
        limit=f"<= {limit} bytes",
        measured=f"not known of {_calls(calls)}: {why or 'nothing was observed'}",
        place=places.of(f"budgets.{field}"),
    )
    return Judged(gates=(gate,), breaches=())


def _gate_name(field: str) -> str:
    return f"budgets.{field}, planned" if field == "peak_memory_bytes" else f"budgets.{field}"


def _calls(count: int) -> str:
    return "one call" if count == 1 else f"{count} calls at once"


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={number}" for name, number in sizes.items()) or "its fixed sizes"
