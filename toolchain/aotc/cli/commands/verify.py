"""`aotc verify`: the gate, with every reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aotc.base.errors import EXIT_NO, EXIT_YES
from aotc.cli.commands.base import bars, respond
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import (
    Artifact,
    Channel,
    Format,
    Json,
    NoTrustState,
    PublicKey,
    Reports,
    TargetHost,
    Trust,
)

if TYPE_CHECKING:
    from aotc.report.sheet import Sheet
    from aotc.spec.reports import VerifyReport

app = new_app()


@app.command(cls=Command)
@examples(
    "aotc verify model.aotc --key release.pub",
    "aotc verify model.aotc --trust trust.yaml --explain",
)
def verify(
    artifact: Artifact,
    *,
    trust: Trust = None,
    key: PublicKey = None,
    unsafe_no_trust_state: NoTrustState = False,
    channel: Channel = None,
    target: TargetHost = None,
    full: Annotated[
        bool, typer.Option("--full", help="also hash, as a whole, files whose chunks were hashed")
    ] = False,
    exported: Annotated[
        bool,
        typer.Option(
            "--exported", help="verify what 'aotc export --reverify' wrote, for no target"
        ),
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="show which rule of the policy decided, and why")
    ] = False,
    reports: Reports,
    form: Format = None,
    json: Json = False,
) -> int:
    """Check an artifact's signature, digests and fit to a host.

    The exit status is 0 if the artifact is authentic, the trust policy accepts it, and one of its
    variants runs on the target; else 1. With '--target none', the default without ONNX Runtime, it
    is 0 if it is authentic and accepted, wherever it runs. Every reason is listed. With a policy,
    the highest sequence, the release and the time are recorded, so that nothing older is accepted
    later. With '--exported', what 'aotc export --reverify' wrote is verified where it lies.
    """
    from aotc.cli.run_reporting import Run, reported
    from aotc.spec.reports import NO_TARGET
    from aotc.trust.gate import default_target
    from aotc.trust.gate import verify as run_gate

    target = target or (NO_TARGET if exported else default_target())
    stated = {"artifact": str(artifact), "target": target}
    with reported(Run("verify", reports, form, json=json, others=(artifact,), **stated)) as run:
        with bars(json=json):
            if exported:
                from aotc.tools.exported import verify_export

                report = verify_export(
                    artifact,
                    trust=trust,
                    key=key,
                    target=target,
                    channel=channel,
                    unsafe_no_trust_state=unsafe_no_trust_state,
                )
            else:
                report = run_gate(
                    artifact,
                    trust=trust,
                    key=key,
                    target=target,
                    full=full,
                    channel=channel,
                    unsafe_no_trust_state=unsafe_no_trust_state,
                )
        status = EXIT_YES if report.ok else EXIT_NO
        if run.is_wanted:
            from aotc.report.runs import verified_breaches, verified_gates

            run.ended(
                status,
                artifact_id=report.artifact_id,
                gates=verified_gates(report),
                breaches=verified_breaches(report),
                findings=report.findings,
            )
    if not run.on_standard_output:
        respond(
            report,
            lambda report: _sheet(report, explain=explain),
            json=json,
            brief=lambda report: report.verdict if report.authentic else "refused",
            status=status,
        )
    return status


def _sheet(report: VerifyReport, *, explain: bool) -> Sheet:
    from aotc.report.sheets.trust import explained_view, verify_view

    return explained_view(report) if explain else verify_view(report)
