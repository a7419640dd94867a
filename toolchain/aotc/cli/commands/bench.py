"""`aotc bench`: what an artifact costs, alone and against the plain model or a baseline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from aotc.base.errors import EXIT_NO, EXIT_YES, AotcError
from aotc.cli.grammar import Command, examples, formerly, new_app
from aotc.cli.options import (
    Artifact,
    Channel,
    Format,
    GivenInputs,
    Json,
    LoadingStore,
    NoTrustState,
    PublicKey,
    Reports,
    Threads,
    Trust,
    TrustStore,
    Variants,
    comma_separated,
    pairs,
    positive,
    positive_real,
)
from aotc.spec.versions import artifact_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotc.spec.bench_reports import BenchReport


app = new_app()

_STDOUT: Final = Path("-")


@app.command(cls=Command)
@examples(
    "aotc bench model.aotc --against model.onnx",
    "aotc bench model.aotc --dim batch=4 --nodes --history bench.jsonl",
)
@formerly(dims="dim", model="against")
def bench(
    artifact: Artifact,
    *,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", metavar="MODEL", parser=Path, help="the model that it was built from"
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            metavar="ARTIFACT|FILE",
            parser=artifact_path,
            help="artifact of the same model to run in turn with, or a history of this machine",
        ),
    ] = None,
    allow: Annotated[
        float | None,
        typer.Option(
            "--allow",
            metavar="RATIO",
            parser=positive_real,
            help="ratio of medians, artifact / baseline, up to which it does not count as slower",
            show_default="1.05",
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            metavar="N",
            parser=positive,
            help="timed runs of each side, of all streams together",
            show_default="300 for each stream, unless --seconds is given",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            metavar="S",
            parser=positive_real,
            help="end after about S seconds, even if runs are left",
            show_default="10, unless --runs is given",
        ),
    ] = None,
    warm_up: Annotated[
        int,
        typer.Option(
            "--warm-up",
            metavar="N",
            parser=positive,
            help="runs of each side before the timed ones",
        ),
    ] = 3,
    streams: Annotated[
        int,
        typer.Option(
            "--streams",
            metavar="N",
            parser=positive,
            help="threads that call the model, each without a pause between calls",
        ),
    ] = 1,
    inputs: GivenInputs,
    dims: Annotated[
        list[str],
        typer.Option(
            "--dim",
            metavar="NAME=SIZE",
            default_factory=list,
            help="size of a dim",
            show_default="the inputs'",
        ),
    ],
    nodes: Annotated[
        bool,
        typer.Option("--nodes", help="measure time per node and per provider, in another session"),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            parser=Path,
            help="write a trace for Perfetto, with nodes; - is standard output",
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            "--history",
            metavar="FILE.jsonl",
            parser=Path,
            help="append the measurement and the machine as one line of JSON",
        ),
    ] = None,
    threads: Threads = None,
    variant: Variants,
    trust: Trust = None,
    key: PublicKey = None,
    unsafe_no_trust_state: NoTrustState = False,
    channel: Channel = None,
    store: LoadingStore = None,
    trust_store: TrustStore = False,
    reports: Reports,
    form: Format = None,
    json: Json = False,
) -> int:
    """Measure an artifact, alone or against the plain model or a baseline.

    Loads and runs are timed. All sides take turns in one process, so that their ratios hold on a
    noisy machine. With --baseline the exit status is 1 if the artifact is shown to be slower.
    """
    from aotc.base.files.writing import write_text
    from aotc.cli.output import needs
    from aotc.cli.progress import stages
    from aotc.cli.run_reporting import Run, reported

    stated = {"model": str(against) if against is not None else "", "artifact": str(artifact)}
    others = (artifact, against, baseline, trace, history)
    with (
        reported(Run("bench", reports, form, json=json, others=others, **stated)) as run,
        stages(quiet=json) as progress,
    ):
        _check_words(allow, baseline, trace, history, json=json)
        _check_outputs(trace, history, (artifact, against, trust, key), baseline)
        sizes = _sizes(dims)
        with needs("bench", loads=True):
            from aotc.tools.bench import bench as measure
        if run.on_standard_output and trace == _STDOUT:
            raise AotcError(
                "AOTC-I027", "--report and --trace both write to standard output", where="--trace"
            )
        traces: list[str] = []
        report = measure(
            artifact,
            against=against,
            baseline=baseline,
            allow=allow,
            runs=runs,
            seconds=seconds,
            warm_up=warm_up,
            streams=streams,
            inputs=inputs,
            dims=sizes,
            nodes=nodes,
            trace=traces.append if trace is not None else None,
            history=history,
            variant=comma_separated(variant),
            threads=threads,
            trust=trust,
            key=key,
            channel=channel,
            unsafe_no_trust_state=unsafe_no_trust_state,
            store=store,
            trust_store=trust_store,
            progress=progress,
        )
        compared = report.comparison
        slower = compared is not None and compared.verdict == "slower"
        status = EXIT_NO if slower else EXIT_YES
        if run.is_wanted:
            from aotc.report.runs import benchmark_measurements, comparison_gate, slower_breach

            run.ended(
                status,
                artifact_id=report.load.artifact_id,
                gates=comparison_gate(report),
                breaches=slower_breach(report),
                findings=report.findings,
                measurements=benchmark_measurements(report),
            )
    if not run.on_standard_output:
        _write(report, "".join(traces), trace, json=json, status=status)
    elif trace is not None:
        write_text(trace, "".join(traces))
    return status


def _check_words(
    allow: float | None,
    baseline: Path | None,
    trace: Path | None,
    history: Path | None,
    *,
    json: bool,
) -> None:
    """Refuse what means nothing, or could not be written later: I017, I026 and I027."""
    from aotc.cli.output import refuse_existing

    if allow is not None and baseline is None:
        raise AotcError("AOTC-I027", "--allow needs --baseline", where="--allow")
    if trace == _STDOUT and json:
        raise AotcError(
            "AOTC-I027", "--json and --trace - both write to standard output", where="--trace"
        )
    files = [path for path in (trace, history) if path is not None and path != _STDOUT]
    refuse_existing(files, force=True)


def _check_outputs(
    trace: Path | None,
    history: Path | None,
    inputs: Sequence[str | Path | None],
    baseline: Path | None,
) -> None:
    """Refuse outputs that would overwrite an input: I027; a history may be its own baseline.

    Those of --report are kept apart by `reported`.
    """
    from aotc.cli.output import refuse_overwriting

    if trace is None and history is None:
        return
    options = (("--trace", trace), ("--history", history))
    outputs = [(option, path) for option, path in options if path is not None]
    refuse_overwriting(outputs, [None if path is None else Path(path) for path in inputs])
    if baseline is not None:
        appended = history is not None and history.resolve() == baseline.resolve()
        kept = [each for each in outputs if not appended or each[0] != "--history"]
        refuse_overwriting(kept, [baseline])


def _sizes(dims: list[str]) -> dict[str, int]:
    sizes = {}
    for name, text in pairs(dims, "--dim").items():
        if not text.isascii() or not text.isdigit():
            raise AotcError(
                "AOTC-I027", "--dim takes one size here", where=f"--dim {name}", found=text
            )
        sizes[name] = int(text)
    return sizes


def _write(report: BenchReport, text: str, trace: Path | None, *, json: bool, status: int) -> None:
    """Write the trace and the answer; where the trace is the output, that to standard error."""
    import sys

    from aotc.base.files.writing import write_text
    from aotc.cli.commands.base import respond
    from aotc.cli.terminal import answering, show_sheet
    from aotc.report.sheets.measurements import bench_view

    if trace == _STDOUT:
        with answering(sys.stdout):
            sys.stdout.write(text)
        show_sheet(bench_view(report), file=sys.stderr)
        return
    if trace is not None:
        write_text(trace, text)
    respond(
        report,
        bench_view,
        json=json,
        brief=lambda report: f"{report.timings[0].median_seconds:.9f}",
        status=status,
    )
