"""Timing: of variants in alternating runs, and of the warm calls of one, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.base.text import duration
from aotc.graph.values import Data
from aotc.pipeline.context import BuildState
from aotc.pipeline.gates import Call
from aotc.pipeline.integer_products import is_companion
from aotc.pipeline.lower import open_variant, variant_request
from aotc.pipeline.plan import unpadded_runs
from aotc.pipeline.types import LoweredModel, ProvenModel, ReferenceRun
from aotc.runtime.telemetry import percentile
from aotc.session.worker import steps_of, tell_steps, waited_seconds
from aotc.spec.codec import Json, encode
from aotc.spec.evidence import Evidence, FormTiming, RunSpread, VariantEvidence
from aotc.spec.payload import Finding

_WARM_UP_RUNS: Final = 3
# A round of a slow model is one run; of a fast one as many as fill this time.
_ROUND_SECONDS: Final = 0.02
_MAX_RUNS: Final = 50
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
    state.clock.reporter.follow("rounds", steps_of(folder, "rounds"))
    value = state.workers.run(
        "aotc.pipeline.timing:measure_job",
        {
            "rounds": rounds,
            "inputs": reference.input_paths,
            "candidates": [
                {
                    **variant_request(item, state.context),
                    "captures": bool(item.captures),
                    "on_refusal": item.plan.cuda.graphs.on_refusal,
                }
                for item in lowered
            ],
        },
        folder=folder,
        where=where,
    ).value
    timed: list[Timed] = [
        AotcError(**item) if isinstance(item, dict) else (item[0], item[1])
        for item in value["timed"]
    ]
    return timed, value["same_bytes"]


def measure_job(request: Json) -> Json:
    """In the worker: median and minimum seconds of a run of each candidate, alternating.

    The fields of an error in place of those of a candidate whose graph is refused.
    """
    from aotc.graph import values
    from aotc.session.parity import same_bits

    inputs = {name: values.load(Path(path)) for name, path in request["inputs"].items()}
    opened = [_run_or_refusal(item, inputs) for item in request["candidates"]]
    runs = [run for run in opened if not isinstance(run, AotcError)]
    repeats = []
    for run in runs:
        for _ in range(_WARM_UP_RUNS):
            started = time.perf_counter()
            run()
            seconds = time.perf_counter() - started
        repeats.append(max(1, min(_MAX_RUNS, int(_ROUND_SECONDS / max(seconds, 1e-6)))))
    times: list[list[float]] = [[] for _ in runs]
    for number in range(request["rounds"]):
        tell_steps(number, request["rounds"])
        for run, count, found in zip(runs, repeats, times, strict=True):
            # The previous candidate left its threads spinning and its data in the caches.
            time.sleep(_PAUSE_SECONDS)
            run()
            started = time.perf_counter()
            for _ in range(count):
                run()
            found.append((time.perf_counter() - started) / count)
    answers = [run() for run in runs]
    timed = iter([[statistics.median(found), min(found)] for found in times])
    return {
        "timed": [
            {key: getattr(item, key) for key in ("code", "what", "where", "expected", "found")}
            if isinstance(item, AotcError)
            else next(timed)
            for item in opened
        ],
        "same_bytes": all(same_bits(answers[0], answer) for answer in answers[1:]),
    }


def _run_or_refusal(candidate: Json, inputs: Mapping[str, Any]) -> Callable[[], Any] | AotcError:
    try:
        return _run_of(candidate, inputs)
    except AotcError as error:
        if not candidate["captures"] or error.code not in _REFUSED:
            raise
        if candidate["on_refusal"] == "fail":
            return error
    return _run_of({**candidate, "captures": False}, inputs)


def _run_of(candidate: Json, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """A run of a candidate; one that captures graphs replays that of these sizes."""
    from aotc.session.device.cuda_place import captured_run
    from aotc.session.sessions import go_on, run

    opened = partial(open_variant, candidate, records=False)
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
        main = main_fixture(cold)
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
