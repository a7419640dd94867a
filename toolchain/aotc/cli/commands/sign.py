"""`aotc sign`: a further signature over the payload of an artifact."""

from __future__ import annotations

from typing import Annotated

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli.commands.base import bars, require_push, respond, signer_of
from aotc.cli.grammar import Command, examples, exclusive, new_app
from aotc.cli.options import (
    AllowExpired,
    AttestedArtifact,
    IdentityToken,
    Json,
    Keyless,
    Push,
    SigningKey,
    TrustConfig,
    VouchingKeys,
)

app = new_app()


@app.command(cls=Command)
@exclusive("--key", "--keyless")
@exclusive("--allow-expired", "--keyless")
@examples(
    "aotc sign model.aotc --key second.pem --trust release.pub",
    "aotc sign model.aotc --force",
)
def sign(
    artifact: AttestedArtifact,
    key: SigningKey = None,
    allow_expired: AllowExpired = False,
    keyless: Keyless = False,
    identity_token: IdentityToken = None,
    trust_config: TrustConfig = None,
    trust: VouchingKeys = None,
    push: Push = False,
    force: Annotated[
        bool, typer.Option("--force", help="replace the signature of the same signer")
    ] = False,
    json: Json = False,
) -> int:
    """Add a further signature to an artifact.

    Nothing else of the artifact changes, and a trusted key must vouch for it already. The
    signature is written to attestations/oms-KEY.sigstore.json. --keyless signs as the identity of
    an OIDC token instead of with a key. With --push the artifact is in a registry, and gets it
    there.
    """
    from aotc.report.sheets.artifact import attested_view
    from aotc.trust.attesting import sign as add_signature

    require_push(artifact, push)
    signer = signer_of(key, keyless, identity_token, trust_config, allow_expired=allow_expired)
    with bars(json=json):
        answer = add_signature(artifact, signer, trust=trust, force=force)
    respond(answer, attested_view, json=json)
    return EXIT_YES
