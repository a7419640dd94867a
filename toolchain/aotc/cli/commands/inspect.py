"""`aotc inspect`: what an artifact or a model says of itself, UNVERIFIED."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aotc.base.errors import EXIT_YES, AotcError
from aotc.base.records import replace
from aotc.cli.commands.base import respond
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import Json, Summary, TrustSource
from aotc.spec.versions import artifact_path

if TYPE_CHECKING:
    from aotc.spec.evidence import NodeErrors
    from aotc.spec.reports import InspectReport


app = new_app()


@app.command(cls=Command)
@examples("aotc inspect model.onnx", "aotc inspect model.aotc --html model.html")
def inspect(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="ARTIFACT|MODEL",
            parser=artifact_path,
            help="NAME.aotc folder, packed file, sha256-ID of an artifact in a store, or a model; "
            "- is standard input",
        ),
    ],
    traffic: Annotated[
        Path | None,
        typer.Option(
            "--traffic",
            metavar="SHAPES",
            parser=Path,
            help="recorded shapes (.jsonl or .csv): show how the artifact would serve them",
        ),
    ] = None,
    summary: Summary = False,
    html: Annotated[
        str | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="page (HTML) to write, with graph, memory and claims; '-' is standard output",
        ),
    ] = None,
    times: Annotated[
        Path | None,
        typer.Option(
            "--times",
            metavar="FILE",
            parser=Path,
            help="output of 'aotc bench --nodes --json': show these times on the page",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            parser=Path,
            help="ONNX file that the artifact was built from: measure errors by node",
        ),
    ] = None,
    fixtures: Annotated[
        Path | None,
        typer.Option(
            "--fixtures",
            metavar="PATH",
            parser=Path,
            help="inputs for --model: .npz, or a folder",
            show_default="the artifact's",
        ),
    ] = None,
    trust_source: TrustSource = False,
    json: Json = False,
) -> int:
    """Show what an artifact or a model contains, unverified.

    Signers are shown as claimed; 'aotc verify' checks them.
    """
    if html == "-" and json:
        raise AotcError("AOTC-I027", "--html - and --json both write to standard output")
    if times is not None and html is None:
        raise AotcError("AOTC-I027", "--times needs --html", where="--times")
    if fixtures is not None and model is None:
        raise AotcError("AOTC-I027", "--fixtures needs --model", where="--fixtures")
    if html is not None:
        from aotc.cli.output import refuse_overwriting, write_page

        refuse_overwriting([("--html", Path(html))], (path, traffic, times, model, fixtures))
    errors = _node_errors(path, model, fixtures, quiet=json or html == "-") if model else {}
    if html is not None:
        from aotc.report.html.artifact_page import artifact_page

        write_page(artifact_page(path, traffic=traffic, times=times, errors=errors), html)
        if html == "-":
            return EXIT_YES
    from aotc.tools.inspect import inspect as inspect_path

    if str(path) == "-":
        from aotc.cli.output import model_given

        with model_given(path) as given:
            report = replace(inspect_path(given, traffic=traffic), path="-")
    else:
        report = inspect_path(path, traffic=traffic, trust_source=trust_source)
    if errors:
        report = replace(report, node_errors=errors)
    from aotc.report.sheets.artifact import inspect_view
    from aotc.report.sheets.summary import inspected_summary

    def identity(report: InspectReport) -> str:
        return report.artifact.artifact_id if report.artifact is not None else report.source.sha256

    respond(report, inspected_summary if summary else inspect_view, json=json, brief=identity)
    return EXIT_YES


def _node_errors(
    path: Path, model: Path, fixtures: Path | None, *, quiet: bool
) -> dict[str, NodeErrors]:
    """Errors by node of the variant that this host prefers, by its name."""
    from aotc.cli.output import needs
    from aotc.cli.progress import stages

    with needs("inspect --model", "cpu"):
        from aotc.tools.debug_parity import measure_nodes
    with stages(quiet=quiet) as progress:
        variant, errors = measure_nodes(path, model, fixtures=fixtures, progress=progress)
    return {variant: errors}
