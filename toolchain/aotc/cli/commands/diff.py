"""`aotc diff`: what changed from one artifact to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.cli.commands.base import respond
from aotc.cli.grammar import suggestions
from aotc.cli.grammar.command import Command, examples, new_app
from aotc.cli.grammar.options import Json
from aotc.contract.artifact_names import artifact_path
from aotc.errors import EXIT_NO, EXIT_YES

app = new_app()

_HELP = "NAME.aotc folder, packed file, or sha256-ID of an artifact in a store"


@app.command(cls=Command)
@examples(
    "aotc diff model.aotc release.aotc.zip",
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
            autocompletion=suggestions.areas,
        ),
    ],
    no_weights: Annotated[
        bool,
        typer.Option(
            "--no-weights", help="do not read weights, which are compared where the extra cpu is"
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            parser=Path,
            help="page to write: what differs, and both graphs side by side",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace a page that exists")] = False,
    json: Json = False,
) -> int:
    """Show what changed from one artifact to another.

    The areas are source, toolchain, profile, variants, passes, placement, shapes, precision,
    exactness, memory, size, weights, requirements and trust. Nothing is verified: 'aotc verify'
    does that. Artifacts that differ are no failure, unless --fail-on says so.
    """
    from aotc.cli.grammar.typed_values import comma_separated
    from aotc.cli.views.diff_view import diff_view
    from aotc.comparing.artifact_comparison import compare

    if html is not None:
        from aotc.cli.written import refuse_existing

        refuse_existing([html], force)
    report = compare(a, b, fail_on=comma_separated(fail_on) or (), weights=not no_weights)
    if html is not None:
        from aotc.cli.pages.diff_page import diff_page
        from aotc.cli.written import write_text
        from aotc.comparing.aligned_nodes import aligned_nodes

        write_text(html, diff_page(report, aligned_nodes(a, b, report)))
    respond(report, diff_view, json=json)
    return EXIT_NO if report.failed else EXIT_YES
