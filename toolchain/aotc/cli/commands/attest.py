"""`aotc attest`: approve an artifact for a channel, or qualify it on this host."""

from __future__ import annotations

from typing import Annotated

import typer

from aotc.base.errors import EXIT_YES, AotcError
from aotc.cli.commands.base import bars, require_push, respond, signer_of
from aotc.cli.grammar import Command, choice, examples, exclusive, new_app
from aotc.cli.options import (
    AllowExpired,
    AttestedArtifact,
    IdentityToken,
    Json,
    Keyless,
    Push,
    SigningKey,
    TrustConfig,
    Variants,
    VouchingKeys,
    comma_separated,
    positive,
)

app = new_app()


@app.command(cls=Command)
@choice("--approve", "--qualify")
@exclusive("--key", "--keyless")
@exclusive("--allow-expired", "--keyless")
@examples(
    "aotc attest model.aotc --approve --channel prod --expires 2099-01-31",
    "aotc attest model.aotc --qualify --runs 5",
)
def attest(
    artifact: AttestedArtifact,
    *,
    approve: Annotated[bool, typer.Option("--approve", help="approve it for a channel")] = False,
    qualify: Annotated[
        bool,
        typer.Option("--qualify", help="test it on this host, and sign the measurements"),
    ] = False,
    channel: Annotated[
        str | None,
        typer.Option("--channel", metavar="NAME", help="channel to approve for, such as prod"),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires",
            metavar="DATE",
            help="end of the approval: 2027-01-31 (its beginning, UTC) or 2027-01-31T12:00:00Z",
        ),
    ] = None,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="text in the approval")] = "",
    variant: Variants,
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            metavar="N",
            parser=positive,
            help="calls with each fixture that a qualification times",
            show_default="30",
        ),
    ] = None,
    key: SigningKey = None,
    allow_expired: AllowExpired = False,
    keyless: Keyless = False,
    identity_token: IdentityToken = None,
    trust_config: TrustConfig = None,
    trust: VouchingKeys = None,
    push: Push = False,
    force: Annotated[
        bool, typer.Option("--force", help="replace an attestation of the same name")
    ] = False,
    json: Json = False,
) -> int:
    """Approve an artifact for a channel, or qualify it on this host.

    A signed statement is put into the artifact, where its other attestations are. --approve says
    that the artifact may be used in a channel until a date. --qualify loads it on this host,
    compares its answers with the golden ones, measures latency and memory, and signs the result
    for this target; where it fails, the exit status is 1 and nothing is written. With --push the
    artifact is in a registry: the statement is added to it there, and nothing else is changed.
    """
    needed = (("--channel NAME", channel), ("--expires DATE", expires))
    lacking = [option for option, given in needed if given is None]
    if approve and lacking:
        what = f"--approve lacks {' and '.join(lacking)}"
        raise AotcError("AOTC-I027", what, where="aotc attest")
    for option, given, wanted in (
        ("--channel", channel is not None, approve),
        ("--expires", expires is not None, approve),
        ("--note", bool(note), approve),
        ("--variant", bool(variant), qualify),
        ("--runs", runs is not None, qualify),
    ):
        if given and not wanted:
            other = "--approve" if qualify else "--qualify"
            raise AotcError("AOTC-I027", f"{option} needs {other}", where="aotc attest")
    require_push(artifact, push)
    signer = signer_of(key, keyless, identity_token, trust_config, allow_expired=allow_expired)
    with bars(json=json):
        if qualify:
            from aotc.runtime import qualification

            answer = qualification.qualify(
                artifact,
                signer,
                trust=trust,
                variant=comma_separated(variant) or (),
                runs=runs or qualification.RUNS,
                force=force,
            )
        else:
            from aotc.trust import attesting

            answer = attesting.approve(
                artifact,
                signer,
                channel=channel or "",
                expires=expires or "",
                note=note,
                trust=trust,
                force=force,
            )
    from aotc.report.sheets.artifact import attested_view

    respond(answer, attested_view, json=json)
    return EXIT_YES
