"""`aotc attest`: approve an artifact for a channel, or qualify it on this host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aotc.cli.commands.base import (
    Command,
    Parser,
    add_artifact,
    add_json,
    add_signer,
    add_variant,
    add_vouching,
    positive,
    respond,
    signer_of,
    split_names,
)
from aotc.errors import EXIT_YES, AotcError

if TYPE_CHECKING:
    from aotc.contract.trust.attestations import AttestReport
    from aotc.contract.trust.signer import Sealer, Signer


def arguments(parser: Parser) -> None:
    """Declare them."""
    add_artifact(parser, packed=False)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--approve", action="store_true", help="approve it for a channel")
    kind.add_argument(
        "--qualify", action="store_true", help="accept it on this host, and sign what was seen"
    )
    parser.add_argument("--channel", metavar="NAME", help="channel to approve for, such as prod")
    parser.add_argument(
        "--expires",
        metavar="DATE",
        help="end of the approval: 2027-01-31 (its beginning, UTC) or 2027-01-31T12:00:00Z",
    )
    parser.add_argument("--note", metavar="TEXT", default="", help="text in the approval")
    add_variant(parser)
    parser.add_argument(
        "--runs",
        metavar="N",
        type=positive,
        help="calls with each fixture that a qualification times (30)",
    )
    add_signer(parser)
    add_vouching(parser)
    parser.add_argument(
        "--force", action="store_true", help="replace an attestation of the same name"
    )
    add_json(parser)


def attest(
    *,
    artifact: Path,
    approve: bool,
    qualify: bool,
    channel: str | None,
    expires: str | None,
    note: str,
    variant: list[str],
    runs: int | None,
    key: Path | None,
    keyless: bool,
    identity_token: Path | None,
    trust_config: Path | None,
    trust: Path | None,
    force: bool,
    json: bool,
) -> int:
    """Sign a statement about an artifact, and put it beside its other attestations.

    --approve says that the artifact may be used in a channel until a date. --qualify loads it on
    this host, compares its answers with the golden ones, measures latency and memory, and signs
    what it saw for this target; exit status 1 where it fails, and nothing is written then.
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
            raise AotcError("AOTC-I027", f"{option} is of {other}", where="aotc attest")
    signer = signer_of(key, keyless, identity_token, trust_config)
    if qualify:
        answer = _qualify(artifact, signer, trust, variant, runs, force)
    else:
        from aotc.attesting.adding import approve as add_approval

        answer = add_approval(
            artifact,
            signer,
            channel=channel or "",
            expires=expires or "",
            note=note,
            trust=trust,
            force=force,
        )
    from aotc.cli.views.attestation_views import attested_view

    respond(answer, attested_view, json=json)
    return EXIT_YES


def _qualify(
    artifact: Path,
    signer: Signer | Sealer,
    trust: Path | None,
    variant: list[str],
    runs: int | None,
    force: bool,
) -> AttestReport:
    from aotc.attesting.qualification import RUNS, qualify

    return qualify(
        artifact,
        signer,
        trust=trust,
        variant=split_names(variant) or (),
        runs=runs or RUNS,
        force=force,
    )


command = Command(attest, arguments)
