"""Timing: of variants in alternating runs, and of the warm calls of one, in one process."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.base.text import duration, size
from aotc.graph import values
from aotc.graph.values import Data
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.gates import Call
from aotc.pipeline.integer_products import is_companion
from aotc.pipeline.lower import open_variant, variant_request
from aotc.pipeline.optimize import load_level, written_level
from aotc.pipeline.plan import unpadded_runs
from aotc.pipeline.specialize import specialize
from aotc.pipeline.types import LoweredModel, ProvenModel, ReferenceRun, VariantPlan
from aotc.runtime.telemetry import percentile
from aotc.session.worker import steps_of, tell_steps, waited_seconds
from aotc.session.worker_pool import JobResult
from aotc.spec.codec import Json, encode
from aotc.spec.evidence import (
    AgainstKeep,
    Evidence,
    FormTiming,
    OperatorCost,
    RunSpread,
    TuningCandidate,
    VariantEvidence,
)
from aotc.spec.payload import Finding
from aotc.spec.precision import QuantizedForm
from aotc.spec.run_report import Gate, GateStatus, Measurement
from aotc.spec.variant import QUANTIZE

_WARM_UP_RUNS: Final = 3
# A round of a slow model is one run; of a fast one as many as fill this time, by wall clock or by
# the processor time of one thread, which nothing else on the machine uses up.
_ROUND_SECONDS: Final = 0.02
_THREAD_ROUND_SECONDS: Final = 0.005
_MAX_RUNS: Final = 50
# Some hosts count processor time in steps, between which none passes.
_TICK: Final = 1e-9
# ONNX Runtime's threads spin for about 50 ms, and take a core from the next candidate.
_PAUSE_SECONDS: Final = 0.12
# A captured graph is refused: by ONNX Runtime, without cuda-bindings, or without a GPU.
_REFUSED: Final = frozenset({"AOTC-R024", "AOTC-I019", "AOTC-R025"})
# Median and minimum seconds of a run, or why there is none.
Timed = tuple[float, float] | AotcError
_ROUNDS: Final = 7
# A form that gains less than noise is not worth its bytes.
_NO_GAIN: Final = 0.97


def time_alternately(
    lowered: Sequence[LoweredModel],
    reference: ReferenceRun,
    state: BuildState,
    *,
    rounds: int,
    folder: Path,
    where: str,
) -> tuple[list[Timed], bool]:
    """Median and minimum seconds of one run of each variant, in one process, alternating.

    A variant that captures CUDA graphs replays one.  If that is refused, it runs without, or has
    the error in place of its seconds, as its plan says.  The second result tells whether the last
    runs of all variants gave the same bytes.
    """
    candidates = [_candidate(item, state) for item in lowered]
    measured = _measured(
        candidates, reference, state, rounds=(rounds, rounds), folder=folder, where=where
    )
    timed: list[Timed] = [
        AotcError(**item) if isinstance(item, dict) else (statistics.median(item), min(item))
        for item in measured["seconds"]
    ]
    return timed, measured["same_bytes"]


def seconds_by_turns(
    lowered: Sequence[LoweredModel],
    reference: ReferenceRun,
    state: BuildState,
    *,
    rounds: tuple[int, int],
    one_thread: bool,
    folder: Path,
    where: str,
) -> list[list[float] | AotcError]:
    """By variant, the seconds of a call of it in each round: with `one_thread` of the processor.

    The error in their place of a variant whose captured graph is refused.
    """
    candidates = [_candidate(item, state) for item in lowered]
    measured = _measured(
        candidates,
        reference,
        state,
        rounds=rounds,
        folder=folder,
        where=where,
        one_thread=one_thread,
    )
    return [AotcError(**item) if isinstance(item, dict) else item for item in measured["seconds"]]


def _candidate(item: LoweredModel, state: BuildState) -> Json:
    return {
        **variant_request(item, state.context),
        "captures": bool(item.captures),
        "on_refusal": item.plan.cuda.graphs.on_refusal,
    }


def _measured(
    candidates: Sequence[Json],
    reference: ReferenceRun,
    state: BuildState,
    *,
    rounds: tuple[int, int],
    folder: Path,
    where: str,
    one_thread: bool = False,
    most_seconds: float | None = None,
) -> Json:
    state.clock.reporter.follow("rounds", steps_of(folder, "rounds"))
    return state.workers.run(
        "aotc.pipeline.timing:measure_job",
        {
            "rounds": rounds,
            "one_thread": one_thread,
            "most_seconds": most_seconds,
            "inputs": reference.input_paths,
            "candidates": candidates,
        },
        folder=folder,
        where=where,
    ).value


def measure_job(request: Json) -> Json:
    """In the worker: by candidate, the seconds of a run of it in each round, alternating.

    The fields of an error in place of those of a candidate whose graph is refused.  With
    `one_thread` seconds are the processor time of sessions of one thread, and `rounds`, least and
    most, are as many as `_ENOUGH_SECONDS` have room for: none where a round takes `most_seconds`.
    """
    from aotc.session.parity import same_bits

    one_thread: bool = request["one_thread"]
    clock = time.thread_time if one_thread else time.perf_counter
    inputs = {name: values.load(Path(path)) for name, path in request["inputs"].items()}
    threads = 1 if one_thread else None
    opened = [_run_or_refusal(item, inputs, threads) for item in request["candidates"]]
    runs = [run for run in opened if not isinstance(run, AotcError)]
    repeats, of_round = [], 0.0
    for run in runs:
        for _ in range(_WARM_UP_RUNS):
            started = clock()
            run()
            seconds = clock() - started
            if one_thread and seconds > _SHORT_SECONDS:
                break
        block = _THREAD_ROUND_SECONDS if one_thread else _ROUND_SECONDS
        repeats.append(max(1, min(_MAX_RUNS, int(block / max(seconds, 1e-6)))))
        of_round += seconds * repeats[-1]
    least, rounds = request["rounds"]
    if one_thread:
        rounds = max(least, min(rounds, int(_ENOUGH_SECONDS / max(of_round, _TICK))))
    most_seconds: float | None = request["most_seconds"]
    if most_seconds is not None and of_round > most_seconds:
        rounds = 0
    times: list[list[float]] = [[] for _ in runs]
    for number in range(rounds):
        tell_steps(number, rounds)
        turns = list(zip(runs, repeats, times, strict=True))
        for run, count, found in turns if number % 2 == 0 else reversed(turns):
            if not one_thread:
                # The previous candidate left its threads spinning.
                time.sleep(_PAUSE_SECONDS)
            # And its data in the caches; a long run of one thread does not show it.
            if count > 1 or not one_thread:
                run()
            started = clock()
            for _ in range(count):
                run()
            found.append(max(clock() - started, _TICK) / count)
    answers = [run() for run in runs] if rounds else []
    timed = iter(times)
    return {
        "seconds": [
            {key: getattr(item, key) for key in ("code", "what", "where", "expected", "found")}
            if isinstance(item, AotcError)
            else next(timed)
            for item in opened
        ],
        "of_round": of_round,
        "same_bytes": all(same_bits(answers[0], answer) for answer in answers[1:]),
    }


def _run_or_refusal(
    candidate: Json, inputs: Mapping[str, Any], threads: int | None
) -> Callable[[], Any] | AotcError:
    try:
        return _run_of(candidate, inputs, threads)
    except AotcError as error:
        if not candidate["captures"] or error.code not in _REFUSED:
            raise
        if candidate["on_refusal"] == "fail":
            return error
    return _run_of({**candidate, "captures": False}, inputs, threads)


def _run_of(candidate: Json, inputs: Mapping[str, Any], threads: int | None) -> Callable[[], Any]:
    """A run of a candidate; one that captures graphs replays that of these sizes."""
    from aotc.session.device.cuda_place import captured_run
    from aotc.session.sessions import go_on, run

    opened = partial(open_variant, candidate, records=False, threads=threads)
    if candidate["captures"]:
        runner = captured_run(opened, inputs, candidate["model"])
        return lambda: runner.run(inputs, None, {})
    session = opened()
    if candidate["free"]:
        go_on(session)
    return lambda: run(session, inputs)


# Timing of both forms of a quantized variant: the portable one, and the one that requires VNNI.
#
# The payload holds both whatever the times say: it is the same for equal inputs, and times are not.


def time_both_forms(proven: Sequence[ProvenModel], state: BuildState) -> list[ProvenModel]:
    """All variants; the first companion of each of the profile's, with its time and the other's."""
    done: set[str] = set()
    found = []
    for item in proven:
        other = next((each for each in proven if is_companion(item.plan, each.plan)), None)
        timed = other is not None and item.plan.spec not in done
        found.append(_timed(item, other, state) if other is not None and timed else item)
        if timed:
            done.add(item.plan.spec)
    return found


def form_findings(evidence: Evidence) -> tuple[Finding, ...]:
    """AOTC-O017 with the times of both forms, AOTC-O018 where the second one gains nothing."""
    return tuple(
        _finding(variant.name, variant.timed_against)
        for variant in evidence.variants
        if variant.timed_against is not None
    )


def _finding(name: str, timed: FormTiming) -> Finding:
    answers = "the same bytes" if timed.same_bytes else "other bytes, within the tolerance"
    return Finding(
        code="AOTC-O017" if timed.ratio < _NO_GAIN else "AOTC-O018",
        what=f"a call takes {timed.ratio:.2f} of the time of {timed.other} "
        f"({timed.seconds * 1e3:.3g} ms and {timed.other_seconds * 1e3:.3g} ms), with {answers}",
        where=f"variant {name}",
    )


def _timed(item: ProvenModel, other: ProvenModel, state: BuildState) -> ProvenModel:
    reference = _reference(item)
    try:
        (own, others), same_bytes = time_alternately(
            [item.lowered, other.lowered],
            reference,
            state,
            rounds=_ROUNDS,
            folder=state.work / f"forms-{item.plan.name}",
            where=f"variant {item.plan.name}",
        )
    except AotcError as error:
        # Both were proven: what fails here, such as the time limit, says nothing against them.
        state.announce(error.line())
        return item
    # Graphs that a provider captures are refused alone, and both forms are of the CPU's.
    assert not isinstance(own, AotcError)
    assert not isinstance(others, AotcError)
    timing = FormTiming(
        other=other.plan.name,
        fixture=reference.name,
        seconds=own[0],
        other_seconds=others[0],
        same_bytes=same_bytes,
    )
    return replace(item, evidence=replace(item.evidence, timed_against=timing))


def _reference(item: ProvenModel) -> ReferenceRun:
    """A fixture that the variant takes unpadded, at the optimal sizes if there is one."""
    analyzed = item.lowered.analyzed
    found = unpadded_runs(analyzed, item.plan, analyzed.references) or analyzed.references
    return next((reference for reference in found if reference.name == "opt"), found[0])


# Timing of each variant in a lower precision beside the same one in `keep`.
#
# On the CPU provider by the processor time of one thread, of which a busy machine takes little; by
# wall clock elsewhere.


# Rounds at least and at most, and the seconds of processor time that suffice for all of them.
_THREAD_ROUNDS: Final = (5, 15)
_WALL_ROUNDS: Final = (9, 9)
_ENOUGH_SECONDS: Final = 0.5
# Where memory lies makes equal sessions differ by some per cent, otherwise in each process: what
# shows as slower must do so in each of them, unless it is so clear that one says enough.
_PROCESSES: Final = 3
_CLEAR: Final = 1.25
# A round that takes longer is not repeated, unless the profile has a gate on it.
_LONG_ROUND_SECONDS: Final = 4.0
# Of an end of the interval of a ratio: by chance the truth lies beyond it.
_BEYOND: Final = 0.05
_PROFILED_CALLS: Final = 20
_PROFILED_SECONDS: Final = 0.5
# Operators, and nodes of each, that are named.
_MAX_NAMED: Final = 3
# Of the time in `keep`, below which an operator does not tell why a variant is slower.
_COST_SHARE: Final = 0.02
_OTHER_FORMS: Final[Mapping[QuantizedForm, str]] = {
    "static": "'quantization: {form: dynamic}'",
    "dynamic": "'quantization: {form: static}' with calibration data",
    "weights": "int8 with 'quantization: {form: dynamic}', or static with calibration data",
}
_BREACHES: Final = {
    "AOTC-M005": "a lower precision is not as fast as its budget says",
    "AOTC-M006": "the speedup of a lower precision cannot be judged",
}
# A variant in `keep` that went through all stages but the proof.
InKeep = Callable[[VariantPlan, BuildState], LoweredModel]


def time_against_keep(
    proven: Sequence[ProvenModel],
    tried: Sequence[TuningCandidate],
    in_keep: InKeep,
    state: BuildState,
) -> list[ProvenModel]:
    """All variants; those in a lower precision with their time, and that of the same in `keep`.

    `tried` are the trials of this build, whose times are taken: nothing is timed twice.
    """
    found, seen = [], set()
    for item in proven:
        if item.plan.precision != "keep":
            # A companion is of the variant whose faster form it is.
            spec = next(
                (each.plan.spec for each in proven if is_companion(item.plan, each.plan)),
                item.plan.spec,
            )
            beside = _described(item, spec, proven, state)
            if not beside.why_not:
                rows = [row for row in tried if row.variant == spec and spec not in seen]
                seen.add(spec)
                trials = _by_trials(beside, item, rows)
                beside = trials or _beside_keep(beside, item, in_keep, state)
            if beside.ratio is not None:
                where = f"variant {item.plan.name}"
                ratio = Measurement(name="time / keep", subject=where, value=beside.ratio, unit="")
                state.journal.measured((ratio,))
            item = replace(item, evidence=replace(item.evidence, against_keep=beside))
        found.append(item)
    return found


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """The median of `ours[i] / theirs[i]`, and the ends of its 90 % interval.

    There are at least 5 of each.  Whatever the distribution is, the k-th smallest of n ratios is
    above their true median as often as less than k of n coins show heads (the sign test).
    """
    ratios = sorted(our / their for our, their in zip(ours, theirs, strict=True))
    count, k, below = len(ratios), 1, 1
    while (below := below + math.comb(count, k)) <= _BEYOND * 2**count:
        k += 1
    return statistics.median(ratios), ratios[k - 1], ratios[count - k]


def _described(
    item: ProvenModel, spec: str, proven: Sequence[ProvenModel], state: BuildState
) -> AgainstKeep:
    """What is known of a variant beside `keep` without timing it, and why it cannot be timed."""
    profile = state.context.profile
    stated = next(each for each in profile.variants if each.name == spec)
    made = next((each for each in item.lowered.optimized.passes if each.name == QUANTIZE), None)
    others = [each.plan.name for each in proven if is_companion(each.plan, item.plan)]
    why_not = f"hosts like this one run {others[0]}" if others else ""
    if item.parity.status != "passed":
        why_not = f"this host cannot prove it: {item.parity.reason}"
    return AgainstKeep(
        precision=item.plan.precision,
        form=cast("QuantizedForm", made.options["form"]) if made is not None else None,
        goal=stated.goal or profile.goal,
        weights_bytes=item.lowered.memory.weights_bytes,
        keep_weights_bytes=item.lowered.analyzed.source.capture.initializer_bytes,
        why_not=why_not,
    )


def _by_trials(
    beside: AgainstKeep, item: ProvenModel, tried: Sequence[TuningCandidate]
) -> AgainstKeep | None:
    """By the times of `auto` or `--tune`, which are of the optimal sizes; None without these."""
    rows = [row for row in tried if row.median_seconds]
    own = next((row for row in rows if row.chosen), None)
    kept = [
        row
        for row in rows
        if own is not None
        and row.precision == "keep"
        and (row.providers, row.isa, row.threads) == (own.providers, own.isa, own.threads)
    ]
    if own is None or not kept or beside.goal == "memory":
        return None
    seconds, keep_seconds = own.median_seconds, min(row.median_seconds or 0.0 for row in kept)
    assert seconds is not None
    return replace(
        beside,
        fixture=_reference(item).name,
        clock=own.clock,
        rounds=own.rounds,
        seconds=seconds,
        keep_seconds=keep_seconds,
        ratio=seconds / keep_seconds,
    )


def _beside_keep(
    beside: AgainstKeep, item: ProvenModel, in_keep: InKeep, state: BuildState
) -> AgainstKeep:
    try:
        with state.clock.stage("time", f"{item.plan.name}, in {_named(beside)} and in keep"):
            below = state.below(f"keep-{item.plan.name}")
            return _timed_beside_keep(beside, item, in_keep, below)
    except AotcError as error:
        # The variant was proven: what fails here, such as a time limit, says nothing against it.
        state.announce(error.line())
        return replace(beside, why_not=error.line()[:500])


def _timed_beside_keep(
    beside: AgainstKeep, item: ProvenModel, in_keep: InKeep, state: BuildState
) -> AgainstKeep:
    alone, reference = item.plan.cpu_only, _reference(item)
    plan = replace(
        item.plan,
        isa="baseline" if item.plan.isa == "vnni" else item.plan.isa,
        precision="keep",
        keep_float32=(),
        optimization="auto" if item.plan.may_lower_level else item.plan.optimization,
        may_be_static=False,
    )
    own = _candidate(item.lowered, state)
    beside = replace(beside, fixture=reference.name, clock="processor" if alone else "wall")
    processes: list[list[list[float]]] = []
    # What a load needs of memory shows on a graph that was written.
    if alone and beside.goal != "memory":
        kept = _as_imported(own, item, plan, state)
    else:
        kept = _candidate(in_keep(plan, state), state)
    where = f"variant {item.plan.name}"
    is_gate = state.context.profile.budgets.speedup is not None
    for number in range(_PROCESSES):
        # What is opened first may have the better memory.
        turn = -1 if number % 2 else 1
        measured = _measured(
            [own, kept][::turn],
            reference,
            state,
            rounds=_THREAD_ROUNDS if alone else _WALL_ROUNDS,
            one_thread=alone,
            most_seconds=None if is_gate else _LONG_ROUND_SECONDS,
            folder=state.work / f"calls-{number}",
            where=where,
        )
        seconds = measured["seconds"][::turn]
        for refused in seconds:
            if isinstance(refused, dict):
                raise AotcError(**refused)
        if not seconds[0]:
            took = duration(measured["of_round"])
            return replace(beside, why_not=f"a call of it and one in keep take {took} together")
        processes.append(seconds)
        beside = _with_times(beside, processes)
        clear = (beside.ratio_low or 0.0) > _CLEAR or not beside.is_slower
        if clear and not is_gate:
            break
    asked = {"inputs": reference.input_paths, "threads": 1 if alone else None}
    if beside.is_slower:
        request = {**asked, "candidates": [own, kept]}
        times = _job_or_none(
            "aotc.pipeline.timing:node_times_job", request, state.work / "nodes", where, state
        )
        beside = replace(beside, costs=_costs(*times.value) if times else ())
    if beside.goal == "memory":
        peaks = [
            _job_or_none(
                "aotc.pipeline.timing:one_call_job",
                {**asked, "candidate": each},
                folder,
                where,
                state,
            )
            for folder, each in ((state.work / "own", own), (state.work / "kept", kept))
        ]
        taken = [peak.peak_memory_bytes if peak else None for peak in peaks]
        beside = replace(beside, peak_memory_bytes=taken[0], keep_peak_memory_bytes=taken[1])
    return beside


def _job_or_none(
    job: str, request: Json, folder: Path, where: str, state: BuildState
) -> JobResult | None:
    """The result of a job; None where it fails, which takes no time away."""
    try:
        return state.workers.run(job, request, folder=folder, where=where)
    except AotcError as error:
        state.announce(error.line())
        return None


def _with_times(beside: AgainstKeep, processes: Sequence[Sequence[Sequence[float]]]) -> AgainstKeep:
    """With the seconds of both sides by round, of all processes so far."""
    found = [paired_ratio(own, kept) for own, kept in processes]
    own, kept = ([each for sides in processes for each in sides[side]] for side in (0, 1))
    return replace(
        beside,
        rounds=len(own),
        processes=len(processes),
        seconds=statistics.median(own),
        keep_seconds=statistics.median(kept),
        ratio=statistics.median(ratio for ratio, _, _ in found),
        ratio_low=min(low for _, low, _ in found),
        ratio_high=max(high for _, _, high in found),
    )


def _as_imported(own: Json, item: ProvenModel, plan: VariantPlan, state: BuildState) -> Json:
    """What a worker opens in place of a variant of the CPU in `keep`: the graph as imported.

    ONNX Runtime optimizes it at load to what a build in `keep` writes, and nothing is copied.
    """
    graph = specialize(item.lowered.analyzed, plan, state.context)
    level = written_level(plan) if plan.isa == "host" else load_level(plan)
    return {
        **own,
        "model": str(graph.graph),
        "weights": str(graph.weights),
        "session": encode(replace(item.lowered.session, optimization=level)),
    }


def node_times_job(request: Json) -> Json:
    """In the worker: for each candidate [operator, node, seconds of a run], by a profile of it."""
    from aotc.session.node_times import seconds_by_node
    from aotc.session.sessions import run

    inputs = {name: values.load(Path(path)) for name, path in request["inputs"].items()}
    found = []
    for number, candidate in enumerate(request["candidates"]):
        session = open_variant(
            candidate, records=False, threads=request["threads"], profile=Path(f"side-{number}")
        )
        started = time.perf_counter()
        for call in range(1 + _PROFILED_CALLS):
            if call > 1 and time.perf_counter() - started > _PROFILED_SECONDS:
                break
            run(session, inputs)
        times = seconds_by_node(Path(session.end_profiling()), first=1)
        found.append([[op, node, seconds] for (op, node), seconds in times.items()])
    return found


def one_call_job(request: Json) -> Json:
    """In the worker: open a candidate and call it once; its peak memory is the result's."""
    inputs = {name: values.load(Path(path)) for name, path in request["inputs"].items()}
    _run_of({**request["candidate"], "captures": False}, inputs, request["threads"])()


def _costs(own: Json, kept: Json) -> tuple[OperatorCost, ...]:
    """The operators whose nodes take most beyond what nodes of these operators take in `keep`."""
    before: Counter[str] = Counter()
    for op, _, seconds in kept:
        before[op] += seconds
    of_operator: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for op, node, seconds in own:
        of_operator[op].append((seconds, node))
    costs = [
        OperatorCost(
            op=op,
            seconds=sum(seconds for seconds, _ in nodes),
            keep_seconds=before[op],
            nodes=tuple(node for _, node in sorted(nodes, reverse=True)[:_MAX_NAMED]),
        )
        for op, nodes in of_operator.items()
    ]
    enough = _COST_SHARE * before.total()
    more = [cost for cost in costs if cost.seconds - cost.keep_seconds > enough]
    more.sort(key=lambda cost: cost.keep_seconds - cost.seconds)
    return tuple(more[:_MAX_NAMED])


def keep_findings(evidence: Evidence) -> Iterator[Finding]:
    """What lower precisions do not gain: AOTC-N075 where calls are slower, N076 where a goal is
    not met, and N077 where calls are slower and the goal is another.
    """
    for variant in evidence.variants:
        beside = variant.against_keep
        if beside is None:
            continue
        where = f"variant {variant.name}"
        if beside.is_slower:
            code = "AOTC-N075" if beside.goal == "speed" else "AOTC-N077"
            yield Finding(code=code, what=_slower_text(beside)[:1000], where=where)
        if beside.goal != "speed" and beside.meets(beside.goal) is False:
            own, kept = (size(int(taken or 0)) for taken in beside.of_goal(beside.goal))
            what = f"goal: {beside.goal} is not met: {_named(beside)} takes {own}, keep {kept}"
            yield Finding(code="AOTC-N076", what=what, where=where)


def _named(beside: AgainstKeep) -> str:
    return f"{beside.precision} {beside.form}" if beside.form else beside.precision


def _times_text(beside: AgainstKeep) -> str:
    """The times of a call of a variant and in `keep`, by which clock."""
    times = f"{duration(beside.seconds or 0.0)} and {duration(beside.keep_seconds or 0.0)}"
    of = "processor time of one thread" if beside.clock == "processor" else "wall clock"
    return f"{times} a call, {of}"


def _interval_text(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f", 90 % interval {low:.2f} to {high:.2f}"


def _slower_text(beside: AgainstKeep) -> str:
    costs = ", ".join(
        f"{cost.op} {duration(cost.seconds)}"
        + (f" after {duration(cost.keep_seconds)}" if cost.keep_seconds else "")
        + f" ({', '.join(cost.nodes)})"
        for cost in beside.costs
    )
    said = (
        f"{_named(beside)} is slower than keep: {beside.ratio:.2f} times its time "
        f"({_times_text(beside)}, fixture {beside.fixture}"
        f"{_interval_text(beside.ratio_low, beside.ratio_high)})"
    )
    said += f"; it goes into {costs}" if costs else ""
    if beside.goal != "speed":
        return f"{said}; goal: {beside.goal} accepts it"
    other = _OTHER_FORMS.get(beside.form) if beside.form else None
    tries = ["'precision: auto'", *([other] if other else [])]
    if beside.weights_bytes < beside.keep_weights_bytes:
        tries.append("'goal: size' if size is what it is for")
    return f"{said}; try {', '.join(tries)}"


# The gate on how much faster lower precisions are.


def require_lower_precision(context: BuildContext, *, tune: bool) -> None:
    """Raise AOTC-M006 if the profile limits the speedup of lower precisions, and asks for none."""
    profile = context.profile
    wanted = {spec.precision or profile.precision for spec in profile.variants}
    if profile.budgets.speedup is None or wanted | {*(profile.tune.precision if tune else ())} != {
        "keep"
    }:
        return
    raise AotcError(
        "AOTC-M006",
        "no variant has a lower precision whose speedup could be judged",
        where="budgets.speedup",
        expected="a variant in a lower precision, or in auto",
        found="precision: keep",
        place=context.places.of("budgets.speedup"),
    )


def judge_speedups(
    proven: Sequence[ProvenModel], table: Sequence[TuningCandidate], state: BuildState
) -> list[AotcError]:
    """A gate for each variant in a lower precision, where the profile limits its speedup.

    AOTC-M005 for one that is not as fast as that beside `keep`, by the median, and where trials
    (`table`) chose `keep`; M006 for one that was not timed, and where there is none.
    """
    limit = state.context.profile.budgets.speedup
    if limit is None:
        return []
    judged = {
        item.plan.name: item.evidence.against_keep
        for item in proven
        if item.evidence.against_keep is not None
        and not any(is_companion(each.plan, item.plan) for each in proven)
    }
    place = state.context.places.of("budgets.speedup")
    breaches = []

    def judge(variant: str, found: str, code: str = "") -> None:
        where, expected = f"variant {variant}", f">= {limit:g} times as fast as in keep"
        status: GateStatus = "failed" if code else "passed"
        gate = Gate(
            name="budgets.speedup",
            subject=where,
            status="not-judged" if code == "AOTC-M006" else status,
            limit=expected,
            measured=found,
            place=place,
        )
        state.journal.judged((gate,))
        if code:
            what = _BREACHES[code]
            breaches.append(
                AotcError(code, what, where=where, expected=expected, found=found, place=place)
            )

    for name, beside in judged.items():
        if beside.speedup is None:
            judge(name, beside.why_not, "AOTC-M006")
            continue
        code = "AOTC-M005" if beside.speedup < limit else ""
        low, high = (1 / end if end else None for end in (beside.ratio_high, beside.ratio_low))
        interval = _interval_text(low, high)
        judge(name, f"{beside.speedup:.2f} times ({_times_text(beside)}{interval})", code)
    kept = [row.variant for row in table if row.chosen and row.precision == "keep"]
    for variant in kept:
        judge(variant, "keep was chosen: no lower precision that passes is faster", "AOTC-M005")
    if not judged and not kept:
        for item in proven:
            judge(item.plan.name, "it computes in the model's own precision", "AOTC-M006")
    return breaches


# Warm calls of one variant, which its proof times: what a user of it may plan with.


# The fixture at the optimal sizes, by the names that it has.
_MAIN: Final = ("opt", "opt-sampled")
# Of the main fixture, and of each other one: calls at least and at most, and seconds that suffice.
_MAIN_CALLS: Final = (5, 50, 0.1)
_OTHER_CALLS: Final = (3, 20, 0.02)
# For all fixtures of a variant; and for a few calls of the main one, where that is not enough.
_TIMED_SECONDS: Final = 0.5
_FEW_SECONDS: Final = 1.0
_FEW_CALLS: Final = 3
# The first call of a session at other sizes plans its memory anew; a slow one does not show it.
_SHORT_SECONDS: Final = 0.02
# Calls of a steady machine differ by less, and so do those of fewer by chance.
_STEADY_SPREAD: Final = 0.5
_STEADY_SECONDS: Final = 1e-4
_STEADY_WAIT: Final = 0.2


def main_fixture(names: Collection[str]) -> str:
    """The fixture whose time stands for a variant: that at the optimal sizes, else the first."""
    return next((name for name in _MAIN if name in names), next(iter(names)))


class WarmCalls:
    """In the worker: seconds of warm calls by fixture, and how long the thread waited meanwhile.

    No call is timed once it has `ended`.
    """

    def __init__(self) -> None:
        """Calls of this thread, of which none was made yet."""
        self.ended = False
        self._times: dict[str, list[float]] = {}
        self._began = time.perf_counter()
        self._waited = waited_seconds()

    @property
    def names(self) -> Collection[str]:
        """The fixtures of which calls were timed."""
        return self._times.keys()

    def timed(self, fixture: str, call: Call) -> Call:
        """`call` of a fixture, of which each is timed."""
        times = self._times.setdefault(fixture, [])

        def one() -> list[Data]:
            started = time.perf_counter()
            answers = call()
            if not self.ended:
                times.append(time.perf_counter() - started)
            return answers

        return one

    def call_all(
        self,
        cold: Mapping[str, float],
        call_of: Callable[[str], Call],
        repeated: Mapping[str, int],
    ) -> None:
        """Call the fixtures within a budget of time for all of them.

        `cold` are the seconds of the call before, by fixture; of those `repeated`, so many timed
        calls follow.  The main fixture comes first, and has one call whatever it takes; another
        that the budget has no room for is not timed.
        """
        ends = time.perf_counter() + _TIMED_SECONDS
        # It may have been called before.
        main = main_fixture((*self._times, *cold))
        for name in sorted(cold, key=lambda each: each != main):
            least, most, enough = _MAIN_CALLS if name == main else _OTHER_CALLS
            left = repeated.get(name, 0)
            if time.perf_counter() + cold[name] > ends and (name != main or left):
                continue
            first = call_of(name)
            if cold[name] < _SHORT_SECONDS:
                first()
            call, times = self.timed(name, first), self._times[name]
            while len(times) < most - left:
                if len(times) >= least - left and sum(times) + left * cold[name] >= enough:
                    break
                call()
                few = name == main and len(times) < _FEW_CALLS - left and sum(times) < _FEW_SECONDS
                if time.perf_counter() + times[-1] > ends and not few:
                    break

    def measured(self) -> Json:
        """What the evidence states of the calls."""
        times = {name: found for name, found in self._times.items() if found}
        seconds = time.perf_counter() - self._began
        waited = waited_seconds()
        share = None if self._waited is None or waited is None else waited - self._waited
        return {
            "run_seconds": {name: statistics.median(found) for name, found in times.items()},
            "run_spread": {name: encode(spread_of(found)) for name, found in times.items()},
            "waited_share": None if share is None else min(1.0, share / seconds),
        }


def spread_of(seconds: Sequence[float]) -> RunSpread:
    """The spread of the seconds of some calls."""
    ordered = sorted(seconds)
    return RunSpread(
        calls=len(ordered),
        tenth_seconds=percentile(ordered, 0.1),
        lower_seconds=percentile(ordered, 0.25),
        upper_seconds=percentile(ordered, 0.75),
        ninetieth_seconds=percentile(ordered, 0.9),
    )


def unsteady_findings(evidence: Evidence) -> tuple[Finding, ...]:
    """AOTC-N055 if times of a variant, the first such one, are those of a busy machine."""
    told = [(variant.name, why) for variant in evidence.variants if (why := _unsteady(variant))]
    if not told:
        return ()
    name, why = told[0]
    others = len(told) - 1
    if others:
        why += f"; and {others} more variant{'s' if others > 1 else ''} likewise"
    return (Finding(code="AOTC-N055", what=why, where=f"variant {name}"),)


def _unsteady(variant: VariantEvidence) -> str:
    """Why the times of a variant are none to plan with; empty if they are."""
    if (variant.waited_share or 0.0) > _STEADY_WAIT:
        return f"the proof waited for a CPU for {variant.waited_share:.0%} of its time"
    if not variant.run_spread:
        return ""
    fixture = main_fixture(variant.run_spread)
    spread, median = variant.run_spread[fixture], variant.run_seconds[fixture]
    apart = spread.upper_seconds - spread.lower_seconds
    if (
        spread.calls < _MAIN_CALLS[0]
        or median < _STEADY_SECONDS
        or apart <= _STEADY_SPREAD * median
    ):
        return ""
    return (
        f"half of {spread.calls} equal calls took {duration(spread.lower_seconds)} to "
        f"{duration(spread.upper_seconds)}, the others less or more"
    )
