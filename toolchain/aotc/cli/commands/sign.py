"""`aotc sign`: a further signature over the payload of an artifact."""

from __future__ import annotations

from pathlib import Path

from aotc.cli.commands.base import (
    Command,
    Parser,
    add_artifact,
    add_json,
    add_signer,
    add_vouching,
    respond,
    signer_of,
)
from aotc.errors import EXIT_YES


def arguments(parser: Parser) -> None:
    """Declare them."""
    add_artifact(parser, packed=False)
    add_signer(parser)
    add_vouching(parser)
    parser.add_argument(
        "--force", action="store_true", help="replace this signer's signature that is there"
    )
    add_json(parser)


def sign(
    *,
    artifact: Path,
    key: Path | None,
    keyless: bool,
    identity_token: Path | None,
    trust_config: Path | None,
    trust: Path | None,
    force: bool,
    json: bool,
) -> int:
    """Sign an artifact once more, and change nothing else of it.

    A trusted key must vouch for it already. The signature is written to
    attestations/oms-KEY.sigstore.json. --keyless signs as the identity of an OIDC token instead of
    with a key.
    """
    from aotc.attesting.adding import sign as add_signature
    from aotc.cli.views.attestation_views import attested_view

    signer = signer_of(key, keyless, identity_token, trust_config)
    answer = add_signature(artifact, signer, trust=trust, force=force)
    respond(answer, attested_view, json=json)
    return EXIT_YES


command = Command(sign, arguments)
