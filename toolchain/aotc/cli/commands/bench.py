"""`aotc bench`: what an artifact costs, against the plain model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.cli.commands.base import respond
from aotc.cli.grammar.command import Command, examples, new_app
from aotc.cli.grammar.options import (
    Artifact,
    Channel,
    Format,
    Json,
    LoadingStore,
    NoTrustState,
    PublicKey,
    Reports,
    Threads,
    Trust,
    TrustStore,
    Variants,
)
from aotc.cli.grammar.typed_values import comma_separated, pairs, positive
from aotc.errors import EXIT_YES, AotcError

app = new_app()


@app.command(cls=Command)
@examples(
    "aotc bench model.aotc --against model.onnx",
    "aotc bench model.aotc --dim batch=4 --runs 20",
)
def bench(
    artifact: Artifact,
    *,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", metavar="MODEL", parser=Path, help="the model that it was built from"
        ),
    ] = None,
    runs: Annotated[
        int, typer.Option("--runs", metavar="N", parser=positive, help="runs of each side")
    ] = 50,
    dims: Annotated[
        list[str],
        typer.Option(
            "--dim",
            metavar="NAME=SIZE",
            default_factory=list,
            help="size of a dim",
            show_default="the fixture's",
        ),
    ],
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
    """Time an artifact, against the plain model if one is given.

    Loads and runs are timed. Artifact and model take turns in one process, so that their ratio
    holds on a noisy machine.
    """
    sizes = {}
    for name, text in pairs(dims, "--dim").items():
        if not text.isascii() or not text.isdigit():
            raise AotcError(
                "AOTC-I027", "--dim takes one size here", where=f"--dim {name}", found=text
            )
        sizes[name] = int(text)
    from aotc.cli.extras import needs
    from aotc.cli.views.measurement_views import bench_view

    with needs("bench", loads=True):
        from aotc.runtime.bench import bench as measure
    from aotc.cli.progress import stages
    from aotc.cli.run_reporting import reported

    model = str(against) if against is not None else ""
    with (
        reported("bench", reports, form, json=json, model=model, artifact=str(artifact)) as run,
        stages(quiet=json) as progress,
    ):
        answer = measure(
            artifact,
            against=against,
            runs=runs,
            sizes=sizes,
            trust=trust,
            key=key,
            channel=channel,
            unsafe_no_trust_state=unsafe_no_trust_state,
            variant=comma_separated(variant),
            store=store,
            trust_store=trust_store,
            threads=threads,
            progress=progress,
        )
        if run.is_wanted:
            from aotc.reporting.benchmark_run import benchmark_figures

            run.ended(
                artifact_id=answer.load.artifact_id,
                findings=answer.findings,
                figures=benchmark_figures(answer),
            )
    if not run.on_standard_output:
        respond(answer, bench_view, json=json)
    return EXIT_YES
