"""`aotc fleet build`: every model of a file with every profile for every target."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aotc.base.errors import EXIT_INTERRUPTED, EXIT_NO, EXIT_YES, AotcError
from aotc.cli.commands.base import respond
from aotc.cli.grammar import current, examples
from aotc.cli.options import (
    Force,
    Format,
    Json,
    Reports,
    SigningKey,
    executor_names,
    positive,
)

if TYPE_CHECKING:
    from aotc.spec.fleet import FleetPlan, FleetReport


@examples(
    "aotc fleet build fleet.yaml --plan",
    "aotc fleet build fleet.yaml --report fleet.html --report fleet.xml",
)
def build(
    fleet: Annotated[
        Path,
        typer.Argument(metavar="FLEET", parser=Path, help="file of models, profiles and targets"),
    ],
    *,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="show which cells would be built and which not, and build nothing"
        ),
    ] = False,
    only: Annotated[
        list[str],
        typer.Option(
            "--only",
            metavar="GLOB",
            default_factory=list,
            help="build cells whose name, MODEL/PROFILE/TARGET, matches",
        ),
    ],
    shard: Annotated[
        str,
        typer.Option("--shard", metavar="I/N", help="build the I-th of N shares of the cells"),
    ] = "",
    on: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="NAME[://ADDRESS]",
            help="executor that builds: local (processes of this machine), or ray",
            autocompletion=executor_names,
        ),
    ] = "local",
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            metavar="N",
            parser=positive,
            help="cells at the same time",
            show_default="as cores and memory allow",
        ),
    ] = None,
    key: SigningKey = None,
    force: Force = False,
    cache: Annotated[
        bool,
        typer.Option(
            "--cache/--no-cache", help="reuse parts from the user's cache, and add new ones to it"
        ),
    ] = True,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="FOLDER",
            parser=Path,
            help="folder of what is known of each cell from one run to the next",
            show_default="aotc/fleets in the user's state",
        ),
    ] = None,
    reports: Reports,
    form: Format = None,
    json: Json = False,
) -> int:
    """Build every model of a file with every profile for every target.

    Cells whose artifact is there and would be built equally are not built again, so that an
    interrupted call goes on where it was. A cell that fails stops no other. The exit status is 1
    if a cell fails, or is impossible here, that the file does not call 'required: false'.
    """
    from aotc.cli.output import needs
    from aotc.cli.progress import stages
    from aotc.cli.run_reporting import Run, reported

    if plan and reports:
        raise AotcError("AOTC-I027", "a plan has no report", where="--plan", fix="Use --json.")
    with (
        reported(
            Run("fleet build", reports, form, json=json, others=(fleet, key), model=str(fleet))
        ) as run,
        stages(quiet=json) as progress,
    ):
        with needs("fleet build", "cpu"):
            from aotc.fleet.building import FleetRequest, build_fleet, plan_of
        asked: dict[str, Any] = {
            "only": tuple(only),
            "shard": shard,
            "on": on,
            "jobs": jobs,
            "key": key,
            "force": force,
            "cache": cache,
            "state": state,
            "progress": progress,
        }
        if plan:
            document = plan_of(FleetRequest(fleet, **asked))
        else:
            report = build_fleet(fleet, planned=None if json else _tell, **asked)
            status = status_of(report)
            if run.is_wanted:
                from aotc.report.runs import fleet_judged

                run.ended(status, **fleet_judged(report))
    if plan:
        from aotc.report.sheets.fleets import plan_sheet

        respond(document, plan_sheet, json=json)
        return EXIT_YES
    if not run.on_standard_output:
        from aotc.report.sheets.fleets import fleet_sheet

        respond(report, fleet_sheet, json=json, status=status)
    return status


def status_of(report: FleetReport) -> int:
    """The exit status of a run: 1 where a required cell, or what is made of cells, failed."""
    if any(each.outcome == "not-run" for each in report.cells):
        return EXIT_INTERRUPTED
    return EXIT_YES if report.succeeded else EXIT_NO


def _tell(plan: FleetPlan) -> None:
    """Tell on standard error, before anything is built, what cannot be."""
    from aotc.cli.terminal import may_be_lost, write_lines

    if current().quiet:
        return
    impossible = [each for each in plan.cells if each.state == "impossible"]
    with may_be_lost(sys.stderr):
        write_lines(
            [
                f"{each.cell.name}: impossible here: {each.refusals[0].code} {each.reason}"
                for each in impossible
            ],
            file=sys.stderr,
        )
