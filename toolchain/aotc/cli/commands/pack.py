"""`aotc pack`: an artifact as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli.commands.base import respond
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import ArtifactFolder, Force, Json

app = new_app()


@app.command(cls=Command)
@examples("aotc pack model.aotc", "aotc pack model.aotc -o shipped.aotc.zip")
def pack(
    artifact: ArtifactFolder,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="NAME.aotc.zip",
            parser=Path,
            help="file to write",
            show_default="./ARTIFACT.zip",
        ),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> int:
    """Pack an artifact into one file.

    It is not compressed, and has the same bytes each time. 'aotc verify', 'inspect' and 'run' take
    the file as they take the folder, and any unzip opens it. Nothing is verified here.
    """
    from aotc.cli.progress import stages
    from aotc.report.sheets.stores import packing_view
    from aotc.trust.packing import pack as write

    place = output or Path(f"{artifact.resolve().name}.zip")
    with stages(quiet=json) as progress:
        answer = write(artifact, place, force=force, progress=progress)
    respond(answer, lambda report: packing_view(report, report.archive, "packed"), json=json)
    return EXIT_YES
