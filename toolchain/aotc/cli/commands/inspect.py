"""`aotc inspect`: what an artifact or a model says of itself, UNVERIFIED."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.cli.commands.base import respond
from aotc.cli.grammar.command import Command, examples, new_app
from aotc.cli.grammar.options import Json, Summary
from aotc.contract.artifact_names import artifact_path
from aotc.errors import EXIT_YES

app = new_app()


@app.command(cls=Command)
@examples("aotc inspect model.onnx", "aotc inspect model.aotc --traffic traffic.jsonl")
def inspect(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="ARTIFACT|MODEL",
            parser=artifact_path,
            help="NAME.aotc folder, packed file, sha256-ID of an artifact in a store, or .onnx "
            "file; - is standard input",
        ),
    ],
    traffic: Annotated[
        Path | None,
        typer.Option(
            "--traffic",
            metavar="SHAPES",
            parser=Path,
            help="recorded shapes (.jsonl or .csv): what the artifact would do with them",
        ),
    ] = None,
    summary: Summary = False,
    json: Json = False,
) -> int:
    """Show what an artifact or a model says of itself, unverified.

    Signers are shown as claimed; 'aotc verify' checks them.
    """
    from aotc.inspection.summary import inspect as inspect_path

    if str(path) == "-":
        from aotc.cli.standard_input import model_given
        from aotc.records import replace

        with model_given(path) as given:
            report = replace(inspect_path(given, traffic=traffic), path="-")
    else:
        report = inspect_path(path, traffic=traffic)
    if summary:
        from aotc.cli.views.summary_view import inspected_summary as view
    else:
        from aotc.cli.views.inspection_view import inspect_view as view
    respond(report, view, json=json)
    return EXIT_YES
