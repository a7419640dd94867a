"""`aotc inspect`: what an artifact or a model says of itself, UNVERIFIED."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.cli.commands.base import JsonOption, new_app
from aotc.errors import EXIT_YES

app = new_app()


@app.command()
def inspect(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A NAME.aotc folder, or a .onnx file.", show_default=False
        ),
    ],
    json: JsonOption = False,
) -> int:
    """Show what an artifact or a model says of itself, unverified.

    Signers are shown as claimed; 'aotc verify' checks them.
    """
    from aotc.inspection.summary import inspect as inspect_path

    report = inspect_path(path)
    if json:
        from aotc.cli.document import write_document

        write_document(report)
    else:
        from aotc.cli.render import show
        from aotc.cli.views import inspect_view

        show(inspect_view(report))
    return EXIT_YES
