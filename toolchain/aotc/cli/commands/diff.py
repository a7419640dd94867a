"""`aotc diff`: what changed from one artifact or model to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aotc.base.errors import EXIT_NO, EXIT_YES, AotcError
from aotc.cli.commands.base import respond
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import Json, area_names, comma_separated
from aotc.spec.versions import artifact_path

if TYPE_CHECKING:
    from aotc.spec.diff_report import DiffReport


app = new_app()

_HELP = "NAME.aotc folder, packed file, sha256-ID of an artifact in a store, or model NAME.onnx"


@app.command(cls=Command)
@examples(
    "aotc diff model.onnx model.aotc",
    "aotc diff model.aotc release.aotc.zip --fail-on placement,precision,size:1.05",
)
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", parser=artifact_path, help=_HELP)],
    b: Annotated[Path, typer.Argument(metavar="B", parser=artifact_path, help=_HELP)],
    fail_on: Annotated[
        list[str],
        typer.Option(
            "--fail-on",
            metavar="AREA[:RATIO][,...]",
            default_factory=list,
            help="areas that must not differ, or exactness, memory or size by no more than a ratio "
            "B / A: exit status 1 if they do",
            show_default="none",
            autocompletion=area_names,
        ),
    ],
    no_weights: Annotated[
        bool,
        typer.Option("--no-weights", help="do not compare weights (which needs the extra cpu)"),
    ] = False,
    no_run: Annotated[
        bool,
        typer.Option(
            "--no-run", help="run neither artifact: compare the golden outputs that ship with them"
        ),
    ] = False,
    html: Annotated[
        str | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="page (HTML) to write, with both graphs side by side; '-' is standard output",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Show what changed from one artifact or model to another.

    The areas are source, toolchain, profile, variants, passes, placement, shapes, precision,
    exactness, answers, memory, size, weights, requirements, trust and contents. Nothing is
    verified: 'aotc verify' does that. For the answers both are run on the same inputs if both
    verify, else golden outputs are compared. Of a model, with another or with an artifact, what its
    file states is compared, and what both answer; whether the artifact was built from that very
    file is said. Differences fail only if --fail-on names their area.
    """
    if html == "-" and json:
        raise AotcError("AOTC-I027", "--html - and --json both write to standard output")
    from aotc.report.sheets.differences import diff_view
    from aotc.tools.diff.artifacts import diff as compare

    if html is not None:
        from aotc.cli.output import refuse_overwriting
        from aotc.tools.diff.opened_artifact import require_artifacts

        refuse_overwriting([("--html", Path(html))], (a, b))
        require_artifacts(a, b)
    report = compare(
        a, b, fail_on=comma_separated(fail_on) or (), weights=not no_weights, run=not no_run
    )
    lost = None if html is None else _write_page(a, b, report, html)
    if lost is not None and not report.failed:
        raise lost
    if html != "-" or lost is not None:
        respond(report, diff_view, json=json, status=EXIT_NO if report.failed else EXIT_YES)
    if lost is not None:
        from aotc.cli.run_reporting import show_lost

        show_lost([lost])
    return EXIT_NO if report.failed else EXIT_YES


def _write_page(a: Path, b: Path, report: DiffReport, html: str) -> AotcError | None:
    """Write the page of a comparison, in place of one that exists; why it could not be written."""
    from aotc.cli.output import write_page
    from aotc.report.html.diff_page import comparison_page

    try:
        write_page(comparison_page(a, b, report), html)
    except AotcError as error:
        return error
    return None
