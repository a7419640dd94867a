"""`aotc fleet merge-reports`: the reports of shards as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.base.errors import EXIT_NO, EXIT_YES
from aotc.cli.commands.base import respond
from aotc.cli.grammar import examples
from aotc.cli.options import Format, Json, Reports


@examples(
    "aotc fleet merge-reports shard-1.json shard-2.json --report fleet.html --report fleet.xml",
    "aotc fleet merge-reports shard-1.json --partial --json",
)
def merge_reports(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="REPORT...",
            parser=Path,
            help="what 'aotc fleet build --shard I/N --report FILE.json' wrote",
        ),
    ],
    *,
    partial: Annotated[
        bool, typer.Option("--partial", help="also where reports of shards are missing")
    ] = False,
    reports: Reports,
    form: Format = None,
    json: Json = False,
) -> int:
    """Join the reports of a fleet's shards into one.

    Reports of different fleets, cells with two outcomes, and missing shards are refused by name.
    The exit status is 1 if a cell that is required was not built, as that of 'aotc fleet build' is.
    """
    from aotc.cli.run_reporting import Run, reported
    from aotc.fleet.joining import joined_reports
    from aotc.report.runs import fleet_judged
    from aotc.report.sheets.fleets import fleet_sheet

    with reported(Run("fleet merge-reports", reports, form, json=json, others=files)) as run:
        report = joined_reports(files, partial=partial)
        status = EXIT_YES if report.succeeded else EXIT_NO
        if run.is_wanted:
            run.ended(status, **fleet_judged(report))
    if not run.on_standard_output:
        respond(report, fleet_sheet, json=json, status=status)
    return status
