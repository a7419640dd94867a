"""`aotc fleet verify`: which artifacts run on which hosts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from aotc.base.errors import EXIT_NO, EXIT_YES
from aotc.cli.commands.base import bars, respond
from aotc.cli.grammar import examples
from aotc.cli.options import (
    Channel,
    Format,
    Json,
    NoTrustState,
    PublicKey,
    Reports,
    Trust,
    comma_separated,
    target_names,
)
from aotc.spec.versions import artifact_path

if TYPE_CHECKING:
    from aotc.spec.target import Target


@examples(
    "aotc fleet verify model.aotc --targets host,linux-x86-64 --key release.pub",
    "aotc fleet verify model.aotc --key release.pub --require optimal --report matrix.html",
)
def verify(
    artifacts: Annotated[
        list[Path],
        typer.Argument(
            metavar="ARTIFACT...",
            parser=artifact_path,
            help="NAME.aotc folders, packed files, or sha256-IDs of artifacts in a store",
        ),
    ],
    *,
    targets: Annotated[
        list[str],
        typer.Option(
            "--targets",
            metavar="NAME|FILE[,...]",
            default_factory=list,
            help="hosts: host (this machine), built-in targets, or files of 'aotc target probe'",
            show_default="host, without --on",
            autocompletion=target_names,
        ),
    ],
    on: Annotated[
        str,
        typer.Option(
            "--on", metavar="EXECUTOR", help="also each live worker, such as ray://HOST:PORT"
        ),
    ] = "",
    require: Annotated[
        Literal["none", "some", "degraded", "optimal"],
        typer.Option(
            "--require",
            metavar="VERDICT",
            help="the least of each artifact on each host: none, degraded or optimal; some: it "
            "runs on one of them",
        ),
    ] = "degraded",
    trust: Trust = None,
    key: PublicKey = None,
    unsafe_no_trust_state: NoTrustState = False,
    channel: Channel = None,
    full: Annotated[
        bool, typer.Option("--full", help="also hash, as a whole, files whose chunks were hashed")
    ] = False,
    reports: Reports,
    form: Format = None,
    json: Json = False,
) -> int:
    """Show which artifacts run on which hosts: optimal, degraded or incompatible.

    Each artifact's signature and digests are checked once, and nothing is loaded. The exit status
    is 0 if every artifact is authentic and has on every host at least the verdict that --require
    asks for; else 1, and what fails is listed.
    """
    from aotc.cli.run_reporting import Run, reported
    from aotc.fleet.matrix import live_hosts, verify_matrix
    from aotc.report.sheets.fleets import compatibility_sheet, matrix_outcome

    named = comma_separated(targets) or ([] if on else ["host"])
    with reported(Run("fleet verify", reports, form, json=json, others=artifacts)) as run:
        with bars(json=json):
            live: tuple[Target, ...] = ()
            if on:
                from aotc.fleet.building import executor_of

                with executor_of(on) as executor:
                    live = live_hosts(executor)
            report = verify_matrix(
                artifacts,
                named,
                live=live,
                required=require,
                trust=trust,
                key=key,
                full=full,
                channel=channel,
                unsafe_no_trust_state=unsafe_no_trust_state,
            )
        status = EXIT_NO if report.failed else EXIT_YES
        if run.is_wanted:
            from aotc.report.runs import matrix_judged

            run.ended(status, **matrix_judged(report))
    if not run.on_standard_output:
        respond(
            report,
            compatibility_sheet,
            json=json,
            brief=lambda report: matrix_outcome(report)[0],
            status=status,
        )
    return status
