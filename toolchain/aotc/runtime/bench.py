"""Compares an artifact with the plain model: alternately, in one process, on the same inputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aotc.contract.codec.spelling import nearest
from aotc.contract.finding import Finding
from aotc.contract.known_providers import CPU
from aotc.contract.manifest.variant import SessionSpec
from aotc.contract.results.command_reports import BenchReport, Timing
from aotc.engine import session, values
from aotc.engine.file_digest import file_sha256
from aotc.engine.ortvalue import needs_ortvalues
from aotc.errors import AotcError
from aotc.runtime import arrays
from aotc.runtime.loading import load
from aotc.runtime.ready_model import ReadyModel
from aotc.runtime.telemetry import percentile

if TYPE_CHECKING:
    import onnxruntime as ort


def bench(
    artifact: str | Path,
    *,
    against: str | Path | None = None,
    runs: int = 50,
    sizes: Mapping[str, int] | None = None,
    trust: str | Path | None = None,
    key: str | Path | None = None,
    channel: str | None = None,
    unsafe_no_trust_state: bool = False,
    variant: str | Sequence[str] | None = None,
    threads: int | None = None,
    store: str | Path | None = None,
    trust_store: bool = False,
    progress: Callable[[str], None] | None = None,
) -> BenchReport:
    """Load times and latencies of an artifact, and of the model from which it was built.

    Each side is loaded twice and the second load counts, so that both find their files in the page
    cache and the artifact its copy in the store.  The model gets ONNX Runtime's defaults on the
    CPU.  Runs alternate, and so does which side goes first.  Inputs are the artifact's fixture,
    with the dims in `sizes` resized by repeating values.  `trust`, `key`, `channel`,
    `unsafe_no_trust_state`, `variant`, `threads`, `store` and `trust_store` are as for `load`.
    Raises as `load` does, AOTC-I001 (no model), I012 (ONNX Runtime refuses it), and I027 (no
    fixture, or a dim that the artifact lacks).
    """
    report_step = progress or (lambda text: None)
    if against is not None and not Path(against).is_file():
        raise AotcError("AOTC-I001", "no such model file", where=str(against))
    report_step("load the artifact")

    def load_artifact() -> ReadyModel:
        return load(
            artifact,
            trust=trust,
            key=key,
            channel=channel,
            unsafe_no_trust_state=unsafe_no_trust_state,
            variant=variant,
            threads=threads,
            store=store,
            trust_store=trust_store,
        )

    load_artifact().close()
    with load_artifact() as ready:
        inputs, used_sizes = _inputs(ready, sizes or {})
        started = time.perf_counter()
        ready.run(inputs)
        ready_first = time.perf_counter() - started
        plain: Callable[[], object] | None = None
        if against is not None:
            report_step("load the model")
            _open(Path(against), threads)
            started = time.perf_counter()
            opened = _open(Path(against), threads)
            plain_load = time.perf_counter() - started
            names = [output.name for output in ready.outputs]
            ortvalues = needs_ortvalues(opened)

            def plain() -> object:
                return session.run(opened, inputs, names, ortvalues=ortvalues)

            started = time.perf_counter()
            plain()
            plain_first = time.perf_counter() - started
        report_step(f"run {runs} times")
        artifact_seconds, model_seconds = _run_alternately(lambda: ready.run(inputs), plain, runs)
        report = ready.report
        findings = [*ready.findings()]
    if against is not None and file_sha256(Path(against)) != ready.manifest.source.sha256:
        findings.append(
            Finding(
                code="AOTC-R009",
                what="the artifact was built from another model file",
                where=str(against),
            )
        )
    first = _timing("artifact", report.session_seconds, ready_first, artifact_seconds)
    load_ratio = first_ratio = latency_ratio = None
    timings = [first]
    if plain is not None:
        second = _timing("model", plain_load, plain_first, model_seconds)
        timings.append(second)
        total = report.verify_seconds + report.session_seconds + report.warmup_seconds
        load_ratio = first.load_seconds / second.load_seconds
        first_ratio = (total + ready_first) / (plain_load + plain_first)
        latency_ratio = first.median_seconds / second.median_seconds
    return BenchReport(
        artifact=str(artifact),
        variant=report.variant,
        sizes=used_sizes,
        runs=runs,
        threads=threads,
        load=report,
        findings=tuple(findings),
        timings=tuple(timings),
        load_ratio=load_ratio,
        first_ratio=first_ratio,
        latency_ratio=latency_ratio,
    )


def payload_of(ready: ReadyModel) -> Path:
    """The verified, read-only payload in the store from which a model was loaded."""
    return ready.payload


def _inputs(
    ready: ReadyModel, sizes: Mapping[str, int]
) -> tuple[dict[str, values.Data], dict[str, int]]:
    """The first fixture's inputs at `sizes`, and the resulting sizes of all dims."""
    manifest = ready.manifest
    if not manifest.fixtures:
        raise AotcError(
            "AOTC-I027",
            "the artifact holds no fixture to time it with",
            fix="Build it with a larger fixtures.max_bytes.",
        )
    fixture = manifest.fixtures[0]
    known = tuple(manifest.domain.dims)
    for name in sizes:
        if name not in known:
            close = nearest(name, known)
            raise AotcError(
                "AOTC-I027",
                f"the artifact has no free dim {name!r}"
                + (f"; did you mean {close!r}?" if close else ""),
                expected=", ".join(known),
                found=name,
            )
    given = arrays.read_fixture(payload_of(ready), fixture)
    if not sizes:
        return given, dict(fixture.sizes)
    free = {name: size for name, size in fixture.sizes.items() if name in known}
    used_sizes = manifest.domain.complete({**free, **sizes})
    return arrays.resize(given, manifest.inputs, used_sizes), used_sizes


def _open(path: Path, threads: int | None) -> ort.InferenceSession:
    return session.create_session(
        path,
        SessionSpec(optimization="all"),
        providers=(CPU,),
        threads=threads,
        refusal="AOTC-I012",
    )


def _run_alternately(
    one: Callable[[], object], other: Callable[[], object] | None, runs: int
) -> tuple[list[float], list[float]]:
    """Seconds of each run of both sides, which take turns in going first."""
    times: tuple[list[float], list[float]] = ([], [])
    sides = [(0, one)] if other is None else [(0, one), (1, other)]
    for turn in range(runs):
        for index, run in sides if turn % 2 else reversed(sides):
            started = time.perf_counter()
            run()
            times[index].append(time.perf_counter() - started)
    return times


def _timing(name: str, loaded: float, first: float, seconds: list[float]) -> Timing:
    ordered = sorted(seconds)
    return Timing(
        name=name,
        load_seconds=loaded,
        first_seconds=first,
        median_seconds=percentile(ordered, 0.5),
        lower_seconds=percentile(ordered, 0.25),
        upper_seconds=percentile(ordered, 0.75),
    )
