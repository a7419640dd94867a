"""`aotc verify`: the gate, with every reason."""

from __future__ import annotations

from pathlib import Path

from aotc.cli.commands.base import (
    Command,
    Parser,
    add_artifact,
    add_channel,
    add_json,
    add_trust,
)
from aotc.errors import EXIT_NO, EXIT_YES


def arguments(parser: Parser) -> None:
    """Declare them."""
    add_artifact(parser)
    add_trust(parser)
    add_channel(parser)
    parser.add_argument(
        "--target",
        metavar="NAME|FILE",
        default="host",
        help="host to check for: 'host' (this one, the default), a built-in target or a file",
    )
    parser.add_argument(
        "--full", action="store_true", help="also hash whole files whose chunks were hashed"
    )
    parser.add_argument(
        "--explain", action="store_true", help="show which rule of the policy decided, and why"
    )
    add_json(parser)


def verify(
    *,
    artifact: Path,
    trust: Path | None,
    key: Path | None,
    channel: str | None,
    unsafe_no_trust_state: bool,
    target: str,
    full: bool,
    explain: bool,
    json: bool,
) -> int:
    """Check an artifact's signature, its digests, the trust policy, and that it fits a host.

    Exit status 0 where it is authentic and a variant runs, 1 where not; every reason is listed.
    With a policy, the highest sequence, the release and the time are remembered, so that nothing
    older is taken later.
    """
    from aotc.verification.gate import verify as run_gate

    report = run_gate(
        artifact,
        trust=trust,
        key=key,
        target=target,
        full=full,
        channel=channel,
        unsafe_no_trust_state=unsafe_no_trust_state,
    )
    if json:
        from aotc.cli.json_document import write_document

        write_document(report)
    else:
        from aotc.cli.render import show
        from aotc.cli.views.verification_view import verify_view

        shown = verify_view(report)
        if explain:
            from aotc.cli.views.policy_views import decision_view

            shown += decision_view(report.policy)
        show(shown)
    return EXIT_YES if report.authentic and report.verdict in ("optimal", "degraded") else EXIT_NO


command = Command(verify, arguments)
