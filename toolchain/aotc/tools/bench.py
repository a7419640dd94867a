"""Measures an artifact: alone, against the plain model, and against a baseline."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.reading import file_sha256
from aotc.base.records import record, replace
from aotc.runtime.model import ReadyModel
from aotc.session.sessions import import_onnxruntime
from aotc.spec.bench_reports import BenchReport, Comparison, HistoryLine, Timing
from aotc.spec.payload import Finding
from aotc.spec.versions import stated_id
from aotc.tools.bench_comparison import (
    CONFIDENCE,
    Conditions,
    append_line,
    baseline_lines,
    judge,
    paired_interval,
    read_history,
    require_appendable,
    thinned,
    this_machine,
    unpaired_interval,
)
from aotc.tools.bench_nodes import bench_trace, profile_nodes
from aotc.tools.bench_sides import (
    Inputs,
    Loading,
    Measured,
    Plan,
    Side,
    artifact_side,
    inputs_of,
    load_artifact,
    model_side,
    require_streams,
    run_rounds,
    seconds_of,
    timing_of,
)

ARTIFACT: Final = "artifact"
BASELINE: Final = "baseline"
# The first bytes of a packed artifact, which is a zip.
_ZIP: Final = b"PK"


@record
class Baseline:
    """What an artifact is compared with: another one, or the history in a file."""

    path: Path
    allow: float

    @property
    def is_artifact(self) -> bool:
        """Whether it names an artifact: a folder, a packed file, or an entry of a store."""
        if stated_id(self.path) is not None or not self.path.is_file():
            return True
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            return file.read(len(_ZIP)) == _ZIP
        return False


@record
class Answer:
    """The report, and the text of the trace (empty: none was asked for)."""

    report: BenchReport
    trace: str = ""


def bench(
    artifact: str | Path,
    plan: Plan,
    *,
    loading: Loading,
    against: str | Path | None = None,
    sizes: Mapping[str, int] | None = None,
    baseline: Baseline | None = None,
    nodes: bool = False,
    trace: bool = False,
    history: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Answer:
    """Load times and latencies of an artifact, and of what it is compared with.

    Each side is loaded twice and the second load counts.  The plain model `against` gets ONNX
    Runtime's defaults on the CPU; a baseline that is an artifact is loaded as the artifact is.  All
    run in turn (see `rounds`), on the artifact's fixture with the dims in `sizes` resized by
    repeating values.  With `nodes` or `trace` a session of its own is profiled afterwards, and to
    `history` a line is appended at the end.

    Raises as `load` does, AOTC-I001 (no such model or baseline), I012 (ONNX Runtime refuses the
    model), I027 (no fixture, or a dim that the artifact lacks), I063 to I065 (the baseline cannot
    be compared), I066 (ONNX Runtime's profile was cut off), I018 and I026.
    """
    step = progress or (lambda text: None)
    if against is not None and not Path(against).is_file():
        raise AotcError("AOTC-I001", "no such model file", where=str(against))
    if baseline is not None:
        # Before anything is measured in vain.
        _require_baseline(baseline, history)
    if history is not None:
        require_appendable(history)
    require_streams(plan.streams)
    with contextlib.ExitStack() as stack:
        step("load the artifact")
        ready, steps = load_artifact(artifact, loading)
        stack.enter_context(ready)
        inputs, used_sizes = inputs_of(ready, sizes or {})
        conditions = Conditions(
            machine=this_machine(),
            source_sha256=ready.manifest.source.sha256,
            variant=ready.report.variant,
            sizes=used_sizes,
            threads=loading.threads,
            streams=plan.streams,
        )
        earlier: tuple[HistoryLine, ...] = ()
        if baseline is not None and not baseline.is_artifact:
            earlier = baseline_lines(baseline.path, conditions, ready.report.artifact_id)
        sides = [artifact_side(ARTIFACT, ready, inputs, steps)]
        if against is not None:
            step("load the model")
            names = [output.name for output in ready.outputs]
            sides.append(model_side(Path(against), inputs, names, loading.threads))
        other: ReadyModel | None = None
        if baseline is not None and baseline.is_artifact:
            step("load the baseline")
            other, side = _baseline_side(baseline.path, ready, inputs, loading)
            stack.enter_context(other)
            sides.append(side)
        step("run in turn")
        measured = run_rounds({side.name: side.call for side in sides}, plan)
        timings = {side.name: timing_of(side, measured.of(side.name)) for side in sides}
        comparison = None
        if baseline is not None:
            comparison = _comparison(baseline, measured, earlier, other)
        profiled = None
        if nodes or trace:
            step("profile the nodes")
            profiled = profile_nodes(ready, inputs, loading.threads)
        line = _line(ready, conditions, timings[ARTIFACT], measured, comparison)
        report = _report(
            str(artifact), ready, plan, conditions, measured, timings, _findings(ready, against)
        )
        report = replace(report, nodes=profiled.report if profiled else None, comparison=comparison)
        text = ""
        if trace and profiled is not None:
            facts = {"artifact": ready.report.artifact_id, "sizes": used_sizes, "time": line.time}
            text = bench_trace(str(artifact), sides, measured, plan.streams, profiled, facts)
    if history is not None:
        append_line(history, line)
    return Answer(report=report, trace=text)


def _require_baseline(baseline: Baseline, history: Path | None) -> None:
    """Raise AOTC-I001 if nothing is there, and I063 if it is a file that is no history.

    AOTC-I027 is for an artifact that the measurement would be appended to.
    """
    path = baseline.path
    if stated_id(path) is None and not path.exists():
        if history is not None and history.resolve() == path.resolve():
            raise AotcError(
                "AOTC-I001",
                "there is no baseline yet: nothing was appended to the history",
                where=str(path),
                fix="Measure once with --history alone.",
            )
        raise AotcError("AOTC-I001", "no such baseline", where=str(path))
    if not baseline.is_artifact:
        list(read_history(path))
    elif history is not None and history.resolve() == path.resolve():
        raise AotcError(
            "AOTC-I027",
            "--history would overwrite an input, or write into it",
            where=f"--history {history}",
            found=str(path),
            fix="Name another file.",
        )


def _baseline_side(
    path: Path, ready: ReadyModel, inputs: Inputs, loading: Loading
) -> tuple[ReadyModel, Side]:
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
    other: ReadyModel | None,
) -> Comparison:
    """The interval and the verdict on it, from `earlier` measurements or from those of `other`."""
    ours = seconds_of(measured.of(ARTIFACT))
    if other is not None:
        interval = paired_interval(ours, seconds_of(measured.of(BASELINE)))
        artifact_id, time = other.report.artifact_id, ""
    else:
        interval = unpaired_interval(ours, [line.samples for line in earlier])
        artifact_id, time = earlier[-1].artifact_id, earlier[-1].time
    verdict, reason = judge(interval, baseline.allow)
    return Comparison(
        baseline=str(baseline.path),
        kind="history" if other is None else "artifact",
        artifact_id=artifact_id,
        time=time,
        ratio=interval.ratio,
        lower=interval.lower,
        upper=interval.upper,
        confidence=CONFIDENCE,
        allow=baseline.allow,
        rounds=interval.rounds,
        measurements=max(1, len(earlier)),
        verdict=verdict,
        code="AOTC-I067" if verdict == "slower" else "",
        reason=reason,
    )


def _line(
    ready: ReadyModel,
    conditions: Conditions,
    timing: Timing,
    measured: Measured,
    comparison: Comparison | None,
) -> HistoryLine:
    samples = sorted(seconds for block in seconds_of(measured.of(ARTIFACT)) for seconds in block)
    return HistoryLine(
        time=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        machine=conditions.machine,
        onnxruntime=import_onnxruntime().__version__,
        name=ready.manifest.name,
        artifact_id=ready.report.artifact_id,
        source_sha256=conditions.source_sha256,
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


def _findings(ready: ReadyModel, against: str | Path | None) -> list[Finding]:
    findings = [*ready.findings()]
    if against is not None and file_sha256(Path(against)) != ready.manifest.source.sha256:
        findings.append(
            Finding(
                code="AOTC-R009",
                what="the artifact was built from another model file",
                where=str(against),
            )
        )
    return findings


def _report(
    artifact: str,
    ready: ReadyModel,
    plan: Plan,
    conditions: Conditions,
    measured: Measured,
    timings: Mapping[str, Timing],
    findings: list[Finding],
) -> BenchReport:
    load, ours, model = ready.report, timings[ARTIFACT], timings.get("model")
    load_ratio = first_ratio = latency_ratio = None
    if model is not None:
        total = load.verify_seconds + load.session_seconds + load.warmup_seconds
        load_ratio = ours.load_seconds / model.load_seconds
        first_ratio = (total + ours.first_seconds) / (model.load_seconds + model.first_seconds)
        latency_ratio = ours.median_seconds / model.median_seconds
    return BenchReport(
        artifact=artifact,
        variant=load.variant,
        sizes=conditions.sizes,
        runs=ours.samples,
        threads=conditions.threads,
        streams=plan.streams,
        warm_up=plan.warm_up,
        order=measured.order(),
        load=load,
        timings=tuple(timings.values()),
        findings=tuple(findings),
        load_ratio=load_ratio,
        first_ratio=first_ratio,
        latency_ratio=latency_ratio,
    )
