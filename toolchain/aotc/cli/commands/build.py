"""`aotc build`: from a model to a signed, proven artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.cli.commands.base import JsonOption, new_app, pairs
from aotc.errors import EXIT_YES

app = new_app()


@app.command()
def build(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)
    ],
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME|FILE", help="What to build.")
    ] = "edge",
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="NAME|FILE", help="Host to build for, over the profile's."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="NAME.aotc", help="Where to write the artifact."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="PEM",
            envvar="AOTC_SIGNING_KEY",
            help="Signing key; without one, this user's development key.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an output that exists.")] = False,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            "--dim", metavar="NAME=SPEC", help="Fix (seq=128) or bound (batch=1..8) a dim."
        ),
    ] = None,
    fixtures: Annotated[
        Path | None,
        typer.Option("--fixtures", metavar="PATH", help="Inputs to prove with: .npz, or .pb sets."),
    ] = None,
    embed_fixtures: Annotated[
        bool, typer.Option("--embed-fixtures", help="Put your fixtures into the artifact.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Build a signed artifact from an ONNX model, and prove it against the model.

    Exit status 1 where a gate of the profile fails, 3 where the input must be mended;
    nothing is left at the output then.
    """
    dims = pairs(dim or (), "--dim")
    from aotc.cli.extras import needs

    with needs("build", "cpu"):
        from aotc.pipeline import build as run_pipeline
    from aotc.cli.progress import stages

    with stages(quiet=json) as progress:
        report = run_pipeline(
            model,
            profile=profile,
            target=target,
            output=output,
            key=key,
            force=force,
            dims=dims,
            fixtures=fixtures,
            embed_fixtures=embed_fixtures,
            progress=progress,
        )
    if json:
        from aotc.cli.document import write_document

        write_document(report)
    else:
        from aotc.cli.render import show
        from aotc.cli.views import build_view
        from aotc.inspection.summary import inspect

        show(build_view(report, inspect(report.artifact)))
    return EXIT_YES
