"""`aotc unpack`: a packed artifact as a folder again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.base.errors import EXIT_YES, AotcError
from aotc.cli.commands.base import respond
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import Force, Json

app = new_app()


@app.command(cls=Command)
@examples("aotc unpack release.aotc.zip", "aotc unpack release.aotc.zip -o unpacked.aotc")
def unpack(
    archive: Annotated[
        Path, typer.Argument(metavar="ARCHIVE", parser=Path, help="NAME.aotc.zip file")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="NAME.aotc",
            parser=Path,
            help="folder to write",
            show_default="./NAME.aotc",
        ),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> int:
    """Unpack an artifact into a folder.

    The file must be as 'aotc pack' writes it, to the byte. Signatures are not verified here.
    """
    from aotc.cli.progress import stages
    from aotc.report.sheets.stores import packing_view
    from aotc.trust.packing import unpack as write

    place = output or _folder(archive)
    with stages(quiet=json) as progress:
        answer = write(archive, place, force=force, progress=progress)
    respond(answer, lambda report: packing_view(report, report.artifact, "unpacked"), json=json)
    return EXIT_YES


def _folder(archive: Path) -> Path:
    from aotc.spec.packed_form import SUFFIX

    if archive.suffix != SUFFIX or not archive.stem:
        raise AotcError(
            "AOTC-I027",
            f"the archive's name does not end in {SUFFIX}, so the folder needs a name",
            where=str(archive),
            fix="Give one with -o.",
        )
    return Path(archive.stem)
