"""`aotc run`: load an artifact and run it, on files or on its own fixtures."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aotc.base.errors import EXIT_YES, AotcError
from aotc.cli.commands.base import bars, respond
from aotc.cli.grammar import Command, current, examples, new_app
from aotc.cli.options import (
    Artifact,
    Channel,
    GivenInputs,
    Json,
    LoadingStore,
    NoTrustState,
    PublicKey,
    Threads,
    Trust,
    TrustStore,
    Variants,
    comma_separated,
)

if TYPE_CHECKING:
    from aotc.report.sheet import Sheet
    from aotc.runtime.model import Model
    from aotc.runtime.prometheus import PrometheusMetrics
    from aotc.runtime.telemetry import Telemetry


app = new_app()


@app.command(cls=Command)
@examples(
    "aotc run model.aotc",
    "aotc run model.aotc --input x=x.npy --output-dir outputs",
)
def run(
    artifact: Artifact,
    *,
    inputs: GivenInputs,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir", metavar="DIR", parser=Path, help="folder to write each output to"
        ),
    ] = None,
    variant: Variants,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="FILE.jsonl",
            parser=Path,
            help="file to append the shapes of inputs to",
        ),
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option(
            "--metrics",
            metavar="FILE",
            parser=Path,
            help="file to write the counters to: .json, or .prom for Prometheus' text form; - is "
            "standard output, in JSON, and the outputs are shown on standard error",
        ),
    ] = None,
    threads: Threads = None,
    trust: Trust = None,
    key: PublicKey = None,
    unsafe_no_trust_state: NoTrustState = False,
    channel: Channel = None,
    store: LoadingStore = None,
    trust_store: TrustStore = False,
    json: Json = False,
) -> int:
    """Load an artifact and run it on files, or on its fixtures.

    The artifact is verified first, and run once. Inputs are .npy or .json files by name, or a .npz
    with inputs by name; without any, each fixture that the artifact holds is run. Of one that holds
    none, inputs are made: drawn from a seed, within the ranges of the proof.
    """
    from aotc.base.files.names import file_names
    from aotc.cli.output import needs
    from aotc.report.sheets.measurements import run_view
    from aotc.spec.command_reports import RunCase, RunReport

    with needs("run", loads=True):
        from aotc.runtime import value_files
        from aotc.runtime.loading import load
        from aotc.tools.example_inputs import examples
    to_stdout = str(metrics) == "-"
    if to_stdout and json:
        raise AotcError("AOTC-I055", "--json writes to standard output, too", where="--metrics -")
    _check_files(record, None if to_stdout else metrics)
    told = _prometheus(metrics)
    with bars(json=json):
        loaded = load(
            artifact,
            name=artifact.name.removesuffix(".aotc"),
            trust=trust,
            key=key,
            channel=channel,
            unsafe_no_trust_state=unsafe_no_trust_state,
            variant=comma_separated(variant),
            threads=threads,
            store=store,
            trust_store=trust_store,
            record=record,
        )
    with loaded as model, _metrics_of(model, told, metrics):
        cases = {example.name: example for example in examples(model, inputs)}
        runs = []
        for name, example in cases.items():
            given = example.inputs
            started = time.perf_counter()
            with example.running():
                found = model.run(given)
            seconds = time.perf_counter() - started
            written: dict[str, Path] = {}
            if output_dir is not None:
                place = output_dir if inputs else output_dir / file_names(cases)[name]
                written = value_files.write_outputs(place, found)
            outputs = tuple(
                value_files.describe_output(output, value, written.get(output))
                for output, value in found.items()
            )
            route = model.route(given)
            runs.append(RunCase(name=name, route=route, outputs=outputs, seconds=seconds))
    # Closing wrote the record, and findings say where that failed.
    answer = RunReport(
        artifact=str(artifact),
        load=model.report,
        runs=tuple(runs),
        findings=(
            *model.findings(),
            *(finding for example in cases.values() for finding in example.findings()),
        ),
    )
    if to_stdout:
        _show_beside(run_view(answer))
    else:
        respond(answer, run_view, json=json, brief=lambda answer: answer.load.artifact_id)
    return EXIT_YES


def _check_files(record: Path | None, metrics: Path | None) -> None:
    """Refuse what could not be written later; raises AOTC-I017, I026 and I027."""
    from aotc.cli.output import refuse_existing

    if metrics is not None and metrics.suffix not in (".json", ".prom"):
        raise AotcError(
            "AOTC-I027",
            "--metrics takes a .json or a .prom file",
            where="--metrics",
            found=str(metrics),
        )
    if record is not None and record.suffix != ".jsonl":
        raise AotcError(
            "AOTC-I027", "--record takes a .jsonl file", where="--record", found=str(record)
        )
    refuse_existing([path for path in (record, metrics) if path is not None], force=True)


def _prometheus(path: Path | None) -> PrometheusMetrics | None:
    """What the calls are counted in for a .prom file; raises AOTC-I019."""
    if path is None or path.suffix != ".prom":
        return None
    from aotc.runtime.prometheus import PrometheusMetrics

    return PrometheusMetrics(registry=None)


def _show_beside(sheet: Sheet) -> None:
    """Show the answer on standard error, unless the call is to be quiet."""
    from aotc.cli.terminal import may_be_lost, show_sheet

    if not current().quiet:
        with may_be_lost(sys.stderr):
            show_sheet(sheet, file=sys.stderr)


@contextmanager
def _metrics_of(model: Model, told: PrometheusMetrics | None, path: Path | None) -> Iterator[None]:
    """Write the model's counters at the end, also where a call was refused."""
    try:
        yield
    finally:
        if path is not None:
            _write_metrics(path, model.telemetry, told)


def _write_metrics(path: Path, telemetry: Telemetry, told: PrometheusMetrics | None) -> None:
    from aotc.base.files.writing import write_text

    if str(path) == "-":
        from aotc.cli.output import write_document

        write_document(telemetry.snapshot())
    elif told is not None:
        write_text(path, told.text())
        told.close()
    else:
        from json import dumps

        write_text(path, dumps(telemetry.to_dict(), indent=2) + "\n")
