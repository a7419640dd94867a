"""`aotc fleet emit`: files with which another system builds a fleet in shards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli.commands.base import respond
from aotc.cli.grammar import examples
from aotc.cli.options import Force, Json, positive


@examples(
    "aotc fleet emit fleet.yaml --form github --shards 8 -o .github/workflows",
    "aotc fleet emit fleet.yaml --form kubernetes --shards 20 -o jobs",
)
def emit(
    fleet: Annotated[
        Path, typer.Argument(metavar="FLEET", parser=Path, help="file of the fleet, in YAML")
    ],
    *,
    form: Annotated[
        Literal["github", "gitlab", "kubernetes"],
        typer.Option(
            "--form",
            metavar="SYSTEM",
            help="system that builds the fleet: github, gitlab or kubernetes",
        ),
    ],
    shards: Annotated[
        int,
        typer.Option(
            "--shards", metavar="N", parser=positive, help="jobs to divide the cells into"
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", parser=Path, help="folder to write into"),
    ],
    force: Force = False,
    json: Json = False,
) -> int:
    """Write a workflow, a pipeline or jobs that build a fleet in shards.

    Each job calls 'aotc fleet build --shard', on a machine that has what its cells need, and a last
    one merges the reports. Files that exist are only replaced with --force, and only if they were
    emitted, too.
    """
    from aotc.fleet.emitting import emitted_files
    from aotc.report.sheets.fleets import emitted_sheet

    answer = emitted_files(fleet, form=form, shards=shards, folder=output, force=force)
    respond(answer, emitted_sheet, json=json, brief=lambda answer: answer.files)
    return EXIT_YES
