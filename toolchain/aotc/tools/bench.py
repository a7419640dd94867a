"""Measures an artifact: alone, against the plain model, and against a baseline."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.reading import file_sha256
from aotc.base.files.replacing import check_output
from aotc.base.files.writing import write_text
from aotc.base.records import replace
from aotc.graph import values
from aotc.runtime.custom_ops import registrable
from aotc.runtime.model import Model
from aotc.session.sessions import import_onnxruntime
from aotc.spec.bench_reports import BenchReport, Comparison, HistoryLine, Timing
from aotc.spec.payload import Finding
from aotc.spec.versions import artifact_name
from aotc.tools.bench_comparison import (
    CONFIDENCE,
    Baseline,
    Conditions,
    append_line,
    baseline_lines,
    judge,
    paired_interval,
    require_appendable,
    require_baseline,
    stated_baseline,
    thinned,
    this_machine,
    unpaired_interval,
)
from aotc.tools.bench_nodes import bench_trace, profile_nodes
from aotc.tools.bench_sides import (
    Loading,
    Measured,
    Plan,
    Side,
    artifact_side,
    load_artifact,
    model_side,
    require_openable,
    require_plan,
    run_rounds,
    seconds_of,
    timing_of,
)
from aotc.tools.example_inputs import Inputs, example_at

ARTIFACT: Final = "artifact"
BASELINE: Final = "baseline"
# Enough to state p99; and of a slow model, what can be waited for.
_RUNS: Final = 300
_SECONDS: Final = 10.0


def bench(
    artifact: str | Path,
    *,
    against: str | Path | None = None,
    baseline: str | Path | None = None,
    allow: float | None = None,
    runs: int | None = None,
    seconds: float | None = None,
    warm_up: int = 3,
    streams: int = 1,
    inputs: Mapping[str, values.Data] | Sequence[str | Path] = (),
    dims: Mapping[str, int] | None = None,
    sizes: Mapping[str, int] | None = None,
    nodes: bool = False,
    trace: str | Path | Callable[[str], None] | None = None,
    history: str | Path | None = None,
    variant: str | Sequence[str] | None = None,
    threads: int | None = None,
    trust: str | Path | None = None,
    key: str | Path | None = None,
    channel: str | None = None,
    unsafe_no_trust_state: bool = False,
    store: str | Path | None = None,
    trust_store: bool = False,
    progress: Callable[[str], None] | None = None,
) -> BenchReport:
    """Load times and latencies of an artifact, and of what it is compared with, in seconds.

    Each side is loaded twice and the second load counts.  All sides run in turn in this process,
    in rounds whose order is drawn anew, so that their ratios hold on a noisy machine.

    `artifact` is a folder, a packed file, `sha256-<id>` of an entry of a store, or a reference
    `oci://…`.  `against` is the plain ONNX model, which gets ONNX Runtime's defaults on the CPU.
    `baseline` is an earlier artifact of the same model, which is loaded as the artifact is, or a
    file that `history` wrote; `allow` (default: 1.05) is the ratio of the medians, artifact /
    baseline, up to which the artifact is not called slower (`comparison.verdict` of the report).

    `runs` is the number of timed calls of each side, `seconds` how long all may take, whichever
    ends first; without either, 300 calls for each stream, in 10 seconds.  `warm_up` calls of each
    side come before.  `streams` threads (1 to 256) call one model, each again as soon as it is
    answered.  `inputs` are arrays by name, or words as of `aotc bench --input`; without any, the
    artifact's first fixture, in the shapes and dtypes of the model, or made ones (AOTC-I114) where
    it holds none.  `dims` are sizes of dims by name, to which they are resized by repeating
    values; `sizes` is its former name.

    With `nodes`, another session is profiled for the time of each node.  `trace` is a file for a
    trace of Perfetto (JSON), nodes in it, or a function that is called with its text.  To the file
    `history` one line of JSON is appended.  `variant`, `threads`, `trust`, `key`, `channel`,
    `unsafe_no_trust_state`, `store` and `trust_store` are as in `aotc.load`.  `progress` is called
    with the name of each step.

    Raises as `aotc.load` does, AOTC-I001 (no such model or baseline), I012 (ONNX Runtime refuses
    the model), I027 (inputs, a dim that the artifact lacks, or a number out of range), I113 (inputs
    cannot be made), I063 to I065 (the baseline cannot be compared), I066 (ONNX Runtime's profile
    was cut off), I017, I018 and I026 (the trace or the history cannot be written).
    """
    loading = Loading(
        trust=trust,
        key=key,
        channel=channel,
        unsafe_no_trust_state=unsafe_no_trust_state,
        variant=variant,
        threads=threads,
        store=store,
        trust_store=trust_store,
    )
    if runs is None and seconds is None:
        runs, seconds = _RUNS * streams, _SECONDS
    plan = Plan(runs=runs, seconds=seconds, streams=streams, warm_up=warm_up)
    require_plan(plan)
    against = None if against is None else Path(against)
    kept = None if history is None else Path(history)
    compared = None if baseline is None else stated_baseline(baseline, allow)
    step = progress or (lambda text: None)
    if against is not None:
        require_openable(against)
    if compared is not None:
        # Before anything is measured in vain.
        require_baseline(compared, kept)
    if kept is not None:
        require_appendable(kept)
    if isinstance(trace, str | Path):
        check_output(Path(trace), force=True, writes_through=True)
    report, line, text = _measured(
        artifact,
        plan,
        loading,
        against,
        inputs,
        dims or sizes or {},
        compared,
        nodes,
        trace is not None,
        step,
    )
    if kept is not None:
        append_line(kept, line)
    if isinstance(trace, str | Path):
        write_text(Path(trace), text, "trace")
    elif trace is not None:
        trace(text)
    return report


def _measured(
    artifact: str | Path,
    plan: Plan,
    loading: Loading,
    against: Path | None,
    given: Mapping[str, values.Data] | Sequence[str | Path],
    sizes: Mapping[str, int],
    baseline: Baseline | None,
    nodes: bool,
    trace: bool,
    step: Callable[[str], None],
) -> tuple[BenchReport, HistoryLine, str]:
    """The report, its line of a history, and the trace (empty: none was asked for)."""
    with contextlib.ExitStack() as stack:
        step("load the artifact")
        ready, steps = load_artifact(artifact, loading)
        stack.enter_context(ready)
        example, used_sizes = example_at(ready, given, sizes)
        inputs = example.inputs
        conditions = Conditions(
            machine=this_machine(),
            model_sha256=ready.manifest.source.sha256,
            variant=ready.report.variant,
            sizes=used_sizes,
            threads=loading.threads,
            streams=plan.streams,
        )
        earlier: tuple[HistoryLine, ...] = ()
        if baseline is not None and not baseline.is_artifact:
            earlier = baseline_lines(baseline.path, conditions, ready.report.artifact_id)
        with example.running():
            sides = [artifact_side(ARTIFACT, ready, inputs, steps)]
        if against is not None:
            step("load the model")
            names = [output.name for output in ready.outputs]
            with registrable(ready.payload, ready.variants) as libraries:
                files = tuple(libraries.values())
                sides.append(model_side(against, inputs, names, loading.threads, files))
        other: Model | None = None
        if baseline is not None and baseline.is_artifact:
            step("load the baseline")
            other, side = _baseline_side(baseline.path, ready, inputs, loading)
            stack.enter_context(other)
            sides.append(side)
        step("run in turn")
        measured = run_rounds({side.name: side.call for side in sides}, plan)
        timings = {side.name: timing_of(side, measured.of(side.name)) for side in sides}
        comparison = _comparison(baseline, measured, earlier, other) if baseline else None
        profiled = None
        if nodes or trace:
            step("profile the nodes")
            profiled = profile_nodes(ready, inputs, loading.threads)
        line = _line(ready, conditions, timings[ARTIFACT], measured, comparison)
        report = _report(artifact_name(artifact), ready, plan, conditions, measured, timings)
        report = replace(
            report,
            findings=(*_findings(ready, against), *example.findings()),
            comparison=comparison,
            nodes=profiled.report if profiled else None,
        )
        text = ""
        if trace and profiled is not None:
            artifact_id, when = ready.report.artifact_id, line.measured_at
            facts = {"artifact": artifact_id, "sizes": used_sizes, "time": when}
            name = artifact_name(artifact)
            text = bench_trace(name, sides, measured, plan.streams, profiled, facts)
    return report, line, text


def _baseline_side(
    path: Path, ready: Model, inputs: Inputs, loading: Loading
) -> tuple[Model, Side]:
    """The baseline, loaded and called once.

    Raises AOTC-I065 if another model is in it, or it does not accept the inputs.
    """
    other, steps = load_artifact(path, loading)
    try:
        ours, theirs = ready.manifest.source.sha256, other.manifest.source.sha256
        if ours != theirs:
            raise AotcError(
                "AOTC-I065",
                "the baseline was built from another model",
                where=str(path),
                expected=f"model {ours}",
                found=f"model {theirs}",
            )
        try:
            other.route(inputs)
        except AotcError as error:
            # Not as a refusal of the artifact that is measured, whose exit status it may have.
            raise AotcError(
                "AOTC-I065",
                "the baseline does not accept the inputs that the artifact is measured with",
                where=str(path),
                found=error.line(),
                fix="Measure at sizes that both accept (--dim), or name another baseline.",
            ) from None
        return other, artifact_side(BASELINE, other, inputs, steps)
    except AotcError:
        other.close()
        raise


def _comparison(
    baseline: Baseline,
    measured: Measured,
    earlier: Sequence[HistoryLine],
    other: Model | None,
) -> Comparison:
    """The interval and the verdict on it, from `earlier` measurements or from those of `other`."""
    ours = seconds_of(measured.of(ARTIFACT))
    if other is not None:
        interval = paired_interval(ours, seconds_of(measured.of(BASELINE)))
        artifact_id, time = other.report.artifact_id, ""
    else:
        interval = unpaired_interval(ours, [line.samples for line in earlier])
        artifact_id, time = earlier[-1].artifact_id, earlier[-1].measured_at
    verdict, reason = judge(interval, baseline.allow)
    return Comparison(
        baseline=artifact_name(baseline.path),
        kind="history" if other is None else "artifact",
        artifact_id=artifact_id,
        measured_at=time,
        ratio=interval.ratio,
        lower=interval.lower,
        upper=interval.upper,
        confidence=CONFIDENCE,
        max_ratio=baseline.allow,
        rounds=interval.rounds,
        measurements=max(1, len(earlier)),
        verdict=verdict,
        code="AOTC-I067" if verdict == "slower" else "",
        reason=reason,
    )


def _line(
    ready: Model,
    conditions: Conditions,
    timing: Timing,
    measured: Measured,
    comparison: Comparison | None,
) -> HistoryLine:
    samples = sorted(seconds for block in seconds_of(measured.of(ARTIFACT)) for seconds in block)
    return HistoryLine(
        measured_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        machine=conditions.machine,
        onnxruntime=import_onnxruntime().__version__,
        name=ready.manifest.name,
        artifact_id=ready.report.artifact_id,
        model_sha256=conditions.model_sha256,
        variant=conditions.variant,
        sizes=conditions.sizes,
        threads=conditions.threads,
        streams=conditions.streams,
        load_seconds=timing.load_seconds,
        mean_seconds=timing.mean_seconds or 0.0,
        latency_seconds=timing.latency_seconds,
        calls_per_second=timing.calls_per_second or 0.0,
        runs=timing.samples,
        samples=thinned(samples),
        verdict=comparison.verdict if comparison else "",
    )


def _findings(ready: Model, against: Path | None) -> tuple[Finding, ...]:
    if against is None or file_sha256(against) == ready.manifest.source.sha256:
        return ready.findings()
    what = "the artifact was built from another model file"
    return (*ready.findings(), Finding(code="AOTC-R009", what=what, where=str(against)))


def _report(
    artifact: str,
    ready: Model,
    plan: Plan,
    conditions: Conditions,
    measured: Measured,
    timings: Mapping[str, Timing],
) -> BenchReport:
    load, ours, model = ready.report, timings[ARTIFACT], timings.get("model")
    load_ratio = first_ratio = latency_ratio = None
    if model is not None:
        total = load.verify_seconds + load.session_seconds + load.warmup_seconds
        load_ratio = ours.load_seconds / model.load_seconds
        first_ratio = (total + ours.first_run_seconds) / (
            model.load_seconds + model.first_run_seconds
        )
        latency_ratio = ours.median_seconds / model.median_seconds
    return BenchReport(
        artifact=artifact,
        variant=load.variant,
        sizes=conditions.sizes,
        runs=ours.samples,
        threads=conditions.threads,
        streams=plan.streams,
        warmup_calls=plan.warm_up,
        order=measured.order(),
        load=load,
        timings=tuple(timings.values()),
        load_ratio=load_ratio,
        first_ratio=first_ratio,
        latency_ratio=latency_ratio,
    )
