"""Observe: the memory of each variant as it was built, in a process of its own beside the proof."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.base.text import size
from aotc.pipeline.context import BuildState
from aotc.pipeline.lower import variant_request
from aotc.pipeline.memory_budgets import plan_findings, room_for_call
from aotc.pipeline.prove import compared_references, compared_runs
from aotc.pipeline.types import LoweredModel, ProvenModel
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import Evidence, MixedCalls, ObservedMemory
from aotc.spec.memory import PlannedCopies, PlannedMemory
from aotc.spec.payload import Finding
from aotc.spec.shapes import REPEATED, Domain
from aotc.spec.variant import PartitionReport, Transfer

# Sizes that are observed, those of the first fixtures: optimal, smallest, largest.
_SIZES: Final = 4
# Calls of mixed sizes; of all variants they end after this share of the build's time, but for a
# few of each size.
_CALLS: Final = 1000
_SHARE_OF_TIME: Final = 0.05
# What the process may take beside arenas, by its allocator and Python's, without being told.
_NOISE_BYTES: Final = 4 << 20
_NOISE_SHARE: Final = 0.02


def observe_all(proven: Sequence[ProvenModel], state: BuildState) -> list[ProvenModel]:
    """The same variants, each with its memory as observed in its evidence, if it runs here."""
    found = []
    seconds = _SHARE_OF_TIME * state.clock.elapsed() / max(len(proven), 1)
    with state.clock.stage("observe"):
        for item in proven:
            memory = observed_memory(item.lowered, state, mixed_calls=_CALLS, seconds=seconds)
            plan = planned_memory(item.lowered, state, memory)
            evidence = replace(item.evidence, memory=memory, planned=plan)
            found.append(replace(item, evidence=evidence))
    return found


def observed_memory(
    lowered: LoweredModel,
    state: BuildState,
    *,
    mixed_calls: int = 0,
    seconds: float = 0.0,
) -> ObservedMemory | None:
    """The memory of a variant at the sizes of its fixtures; None if this host cannot run it.

    With `mixed_calls`, so many calls of mixed sizes follow, or as many as `seconds` allow.  What
    ends the job, such as a crash in the sandbox, is told as why nothing is known.
    """
    request = _request(lowered, state)
    if request is None:
        return None
    request |= {"mixed_calls": mixed_calls, "seconds": seconds}
    value, why_not = _of_job("aotc.session.observed_memory:observe_job", request, "observe", state)
    return ObservedMemory(why_not=why_not) if why_not else decode(ObservedMemory, value)


def planned_memory(
    lowered: LoweredModel, state: BuildState, observed: ObservedMemory | None
) -> PlannedMemory | None:
    """The memory plan of a variant; None if this host cannot run it, or it has no sizes to run.

    Copies of what has no such plan are those of its partition.

    It tells at which size a budget of memory is exceeded, beside what was `observed` of a load.
    """
    request = _request(lowered, state)
    if request is None:
        return None
    domain = lowered.partitioned.claimed.optimized.specialized.sizes
    seen = observed.at if observed is not None else ()
    graphs = lowered.cuda_graphs
    request |= {
        "domain": encode(domain),
        "limit": room_for_call(state, observed),
        "seen": {each.fixture: each.activation_bytes for each in seen},
        "captures": encode(graphs, full=True) if graphs is not None else None,
    }
    value, why_not = _of_job("aotc.pipeline.memory_plan:plan_job", request, "plan", state)
    plan = PlannedMemory(why_not=why_not) if why_not else decode(PlannedMemory, value)
    return plan if plan.copies else replace(plan, copies=partition_copies(lowered.report, domain))


def partition_copies(report: PartitionReport | None, domain: Domain) -> tuple[PlannedCopies, ...]:
    """What providers hand to each other by a partition, at the optimal and the largest sizes."""
    if report is None:
        return ()
    crossing: dict[tuple[str, str], list[Transfer]] = {}
    for each in report.transfers:
        crossing.setdefault((each.source, each.target), []).append(each)
    found = {}
    for corner in ("opt", "max"):
        sizes = domain.corner(corner)
        for (source, target), values in crossing.items():
            known = [each.bytes if corner == "opt" else each.bytes_max for each in values]
            found[tuple(sizes.items()), source, target] = PlannedCopies(
                sizes=sizes,
                source=source,
                target=target,
                values=len(values),
                bytes=sum(size or 0 for size in known),
                unknown=known.count(None),
            )
    return tuple(found.values())


def _request(lowered: LoweredModel, state: BuildState) -> Json:
    """What a worker is told of a variant and its calls; None if this host cannot run any."""
    if lowered.why_not_run:
        return None
    runs = compared_runs(lowered.analyzed, lowered.plan)
    named: dict[str, Json] = {}
    for reference in compared_references(runs, state):
        sizes = reference["wanted"]
        # What has no elements says nothing.
        if reference["name"].endswith(REPEATED) or not all(sizes.values()):
            continue
        if all(sizes != other["wanted"] for other in named.values()):
            named.setdefault(reference["name"], reference)
    if not named:
        return None
    analyzed, name = lowered.analyzed, lowered.plan.name
    return {
        **variant_request(lowered, state.context),
        "variant": name,
        "inputs": [encode(value) for value in analyzed.source.inputs],
        "padding": encode(analyzed.padding),
        # Observed, a call leaves its profile there, which the plan reads.
        "references": [
            {**reference, "profile": str(state.work / f"observed-{name}-{number}.json")}
            for number, reference in enumerate([*named.values()][:_SIZES])
        ],
    }


def _of_job(job: str, request: Json, what: str, state: BuildState) -> tuple[Json, str]:
    """What a job of a variant answers, or why it does not."""
    variant = request["variant"]
    try:
        result = state.workers.run(
            job,
            request,
            folder=state.work / f"{what}-{variant}",
            where=f"variant {variant}",
        )
    except AotcError as error:
        return None, error.line()[:500]
    return result.value, ""


def memory_findings(evidence: Evidence) -> tuple[Finding, ...]:
    """Where memory is not known, grows, or is not as planned.

    AOTC-M015 where ONNX Runtime gave no statistics, M016 where memory grew, M010 and M011 of plans.
    """
    found: list[Finding] = []
    for variant in evidence.variants:
        found += plan_findings(variant)
        if variant.memory is None:
            continue
        where = f"variant {variant.name}"
        if variant.memory.why_not and not variant.memory.elsewhere:
            found.append(Finding(code="AOTC-M015", what=variant.memory.why_not, where=where))
        elif variant.memory.mixed is not None and (grown := growth(variant.memory.mixed)):
            found.append(Finding(code="AOTC-M016", what=grown, where=where))
    return tuple(found)


def growth(mixed: MixedCalls) -> str:
    """What grew after the first round of mixed calls, in words; empty if nothing did."""
    told = []
    if taken := mixed.grown_arena:
        last = f", last at call {mixed.last_growth}" if mixed.last_growth else ""
        told.append(f"arenas by {size(taken)} to {size(mixed.last_allocated)}{last}")
    if mixed.first_private is not None and mixed.last_private is not None:
        more = mixed.last_private - mixed.first_private - taken
        if more > max(_NOISE_BYTES, _NOISE_SHARE * mixed.first_private):
            told.append(f"the process by {size(more)} beside them")
    if not told:
        return ""
    return (
        f"{' and '.join(told)} in {mixed.calls} calls of {mixed.sizes} sizes, after the first round"
    )
