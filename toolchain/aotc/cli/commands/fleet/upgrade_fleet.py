"""`aotc fleet upgrade`: what another ONNX Runtime makes of models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.base.errors import EXIT_INTERRUPTED, EXIT_NO, EXIT_YES
from aotc.cli.commands.base import respond
from aotc.cli.grammar import examples
from aotc.cli.options import Format, Json, Profile, Reports, positive, positive_real


@examples(
    "aotc fleet upgrade models --to 1.32.0",
    "aotc fleet upgrade fleet.yaml --to 1.32.0 --no-latency --report upgrade.html",
)
def upgrade(
    fleet: Annotated[
        Path,
        typer.Argument(
            metavar="FLEET|DIR", parser=Path, help="file of a fleet, or folder of *.onnx files"
        ),
    ],
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="VERSION|FILE|DIR",
            help="ONNX Runtime to compare with: version (1.33 is the newest 1.33.x), wheel, "
            "requirements, or folder of an environment that has aotc",
        ),
    ],
    since: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="VERSION|FILE|DIR",
            help="ONNX Runtime to compare from",
            show_default="that of this environment",
        ),
    ] = "",
    profile: Profile = "edge",
    pattern: Annotated[
        str,
        typer.Option(
            "--pattern", metavar="GLOB", help="models whose name matches, such as 'vision/*'"
        ),
    ] = "*",
    allow: Annotated[
        float,
        typer.Option(
            "--allow",
            metavar="RATIO",
            parser=positive_real,
            help="slower or faster only where the whole interval is beyond this, or its inverse",
        ),
    ] = 1.05,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            metavar="S",
            parser=positive_real,
            help="for how long a model is timed, by turns in both environments",
        ),
    ] = 3.0,
    latency: Annotated[
        bool, typer.Option("--latency/--no-latency", help="time models, or compare answers alone")
    ] = True,
    jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", parser=positive, help="builds at the same time")
    ] = 1,
    timeout: Annotated[
        int,
        typer.Option(
            "--timeout", metavar="S", parser=positive, help="seconds, by the clock, for a build"
        ),
    ] = 1800,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="go on though aotc was not tried with that version of ONNX Runtime"
        ),
    ] = False,
    reports: Reports,
    form: Format = None,
    json: Json = False,
) -> int:
    """Compare what two versions of ONNX Runtime make of many models.

    The other version is installed into an environment of its own, beside the packages of this one,
    and kept for the next time. Each model is built in both; the answers of the original model and
    of the artifact are compared, and latencies are measured by turns. A model is the same, faster,
    slower, answers differently, or fails. The exit status is 1 if one fails, answers differently or
    is slower. A call that was interrupted goes on where it was.
    """
    from aotc.cli.output import needs
    from aotc.cli.progress import stages
    from aotc.cli.run_reporting import Run, reported
    from aotc.report.sheets.upgrades import upgrade_view

    stated = {"model": str(fleet), "profile": profile}
    with (
        reported(Run("fleet upgrade", reports, form, json=json, others=(fleet,), **stated)) as run,
        stages(quiet=json) as progress,
    ):
        with needs("fleet upgrade", "cpu"):
            from aotc.fleet.upgrade import upgrade as compare
        answer = compare(
            fleet,
            to=to,
            since=since,
            profile=profile,
            pattern=pattern,
            allow=allow,
            measure_seconds=seconds if latency else 0.0,
            jobs=jobs,
            timeout=float(timeout),
            force=force,
            progress=progress,
        )
        status = EXIT_NO if answer.worse() else EXIT_YES
        if answer.unchecked:
            status = EXIT_INTERRUPTED
        if run.is_wanted:
            from aotc.fleet.upgrade_outcomes import judged_upgrade

            gates, breaches, measured = judged_upgrade(answer)
            run.ended(
                status,
                gates=gates,
                breaches=breaches,
                findings=answer.findings,
                measurements=measured,
            )
    if not run.on_standard_output:
        respond(answer, upgrade_view, json=json, status=status)
    return status
