"""`aotc merge`: one artifact of those that were built on different hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli.commands.base import respond, signer_of
from aotc.cli.grammar import Command, bare, examples, exclusive, new_app
from aotc.cli.options import (
    AllowExpired,
    Channel,
    Force,
    IdentityToken,
    Json,
    Keyless,
    NoTrustState,
    SigningKey,
    TrustConfig,
)
from aotc.spec.versions import artifact_path

app = new_app()


@app.command(cls=Command)
@exclusive("--key", "--keyless")
@exclusive("--allow-expired", "--keyless")
@bare("--release", "tag")
@examples(
    "aotc merge portable.aotc other.aotc -o both.aotc",
    "aotc merge model.aotc other.aotc -o signed.aotc --key release.pem --json",
)
def merge(
    artifacts: Annotated[
        list[Path],
        typer.Argument(
            metavar="ARTIFACT...",
            parser=artifact_path,
            help="two or more: NAME.aotc folders, packed files, or sha256-IDs of a store",
        ),
    ],
    *,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="NAME.aotc", parser=Path, help="artifact to write"),
    ],
    key: SigningKey = None,
    allow_expired: AllowExpired = False,
    keyless: Keyless = False,
    identity_token: IdentityToken = None,
    trust_config: TrustConfig = None,
    trust: Annotated[
        Path | None,
        typer.Option(
            "--trust",
            metavar="FILE",
            parser=Path,
            help="trust policy, or list of public keys, by which the artifacts are verified",
            show_default="this user's development key and the signing key",
        ),
    ] = None,
    unsafe_no_trust_state: NoTrustState = False,
    channel: Channel = None,
    builder_id: Annotated[
        str | None,
        typer.Option(
            "--builder-id",
            metavar="URI",
            help="who merges, in the provenance",
            show_default="$AOTC_BUILDER_ID, or urn:aotc:builder:local",
        ),
    ] = None,
    release: Annotated[
        str,
        typer.Option(
            "--release",
            metavar="VERSION",
            help="version of the artifact, in the provenance; without a value that of the CI's tag",
        ),
    ] = "",
    force: Force = False,
    json: Json = False,
) -> int:
    """Merge artifacts of one model, built on different hosts, into one.

    Each is verified first. They need the same model, ranges and promises; variants that are the
    same become one, and weights are stored once. Every variant keeps what was measured of it, and
    where. The result does not depend on their order, is signed anew, and passes the whole gate.
    """
    from aotc.cli.output import needs
    from aotc.cli.progress import stages
    from aotc.report.sheets.stores import merge_view

    with needs("merge", "cpu"):
        from aotc.tools.merge import merge_artifacts
    signer = signer_of(key, keyless, identity_token, trust_config, allow_expired=allow_expired)
    with stages(quiet=json) as progress:
        report = merge_artifacts(
            artifacts,
            output,
            key=signer,
            trust=trust,
            channel=channel,
            unsafe_no_trust_state=unsafe_no_trust_state,
            builder_id=builder_id,
            release=release,
            force=force,
            progress=progress,
        )
    respond(report, merge_view, json=json)
    return EXIT_YES
