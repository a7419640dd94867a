"""`aotc trust`: policies of whom to trust with what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aotc.cli.commands.base import (
    Command,
    Group,
    Parser,
    add_artifact,
    add_channel,
    add_json,
    pairs,
    positive,
    respond,
)
from aotc.contract.results.trust_reports import RootReport, TrustReport
from aotc.errors import EXIT_NO, EXIT_YES


def _init_arguments(parser: Parser) -> None:
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, default=Path("trust.yaml"), help="to write"
    )
    parser.add_argument("--name", required=True, help="name of the policy")
    parser.add_argument(
        "--signer",
        metavar="ID=PUB",
        action="append",
        required=True,
        help="a builder's public key, under a name of yours; may be repeated",
    )
    parser.add_argument("--days", type=positive, default=90, help="until it expires; 90 by default")
    _add_force(parser)
    add_json(parser)


def init(*, output: Path, name: str, signer: list[str], days: int, force: bool, json: bool) -> int:
    """Write a first policy: any of the signers vouches for every artifact.

    Add keys and rules with 'aotc trust add' or an editor, then have root keys sign it.
    """
    from aotc.authoring.policy_answers import policy_answer
    from aotc.authoring.policy_changes import new_policy
    from aotc.authoring.policy_files import write_policy
    from aotc.signing.keys.key_loading import one_key

    signers = [(each, one_key(Path(path))) for each, path in pairs(signer, "--signer").items()]
    written = write_policy(output, new_policy(name, signers, days), new=not force)
    return _show(policy_answer(written), json)


def _root_arguments(parser: Parser) -> None:
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, default=Path("root.yaml"), help="to write"
    )
    parser.add_argument(
        "--policy", metavar="NAME", required=True, help="name of the one policy that is taken"
    )
    parser.add_argument(
        "--key",
        metavar="PUB",
        type=Path,
        action="append",
        required=True,
        help="public key of a root; may be repeated",
    )
    parser.add_argument(
        "--threshold", type=positive, required=True, help="roots that must sign a policy"
    )
    _add_force(parser)
    add_json(parser)


def root(
    *, output: Path, policy: str, key: list[Path], threshold: int, force: bool, json: bool
) -> int:
    """Write a host's file of root keys: put it at /etc/aotc/root.yaml, owned by root.

    Where a host has one, only the policy of that name is taken there, or one that replaces it, and
    only where enough of the roots signed it.
    """
    from aotc.authoring.policy_files import write_roots
    from aotc.cli.views.policy_views import root_view
    from aotc.contract.trust.anchors import key_id
    from aotc.signing.keys.key_loading import one_key
    from aotc.verification.policy.policy_document import read_roots

    keys = [one_key(each) for each in key]
    write_roots(output, keys, threshold, policy=policy, new=not force)
    found = read_roots(output)
    answer = RootReport(
        file=str(output),
        policy=policy,
        threshold=threshold,
        keys=tuple(key_id(pem) for pem in found.keys),
    )
    respond(answer, root_view, json=json)
    return EXIT_YES


def _add_arguments(parser: Parser) -> None:
    _add_policy(parser)
    _add_change(parser)
    add_json(parser)


def add(*, policy: Path, json: bool, **change: Any) -> int:
    """Add keys, rules and revocations to a policy, which gets the next sequence.

    A moment is a date (its beginning, UTC) or such as 2027-01-31T12:00:00Z. Comments in the file
    are not kept, and signatures no longer hold: have it signed again.
    """
    from aotc.authoring.policy_answers import policy_answer
    from aotc.authoring.policy_files import change_policy
    from aotc.authoring.requested_change import change_of
    from aotc.verification.policy.revocations import unmatched_revocations

    written = change_policy(policy, change_of(**change))
    return _show(policy_answer(written, findings=unmatched_revocations(written)), json)


def _check_arguments(parser: Parser) -> None:
    _add_policy(parser)
    add_json(parser)


def check(*, policy: Path, json: bool) -> int:
    """Whether a policy can be used on this host now: its form, signatures, period and sequence.

    Nothing is remembered.
    """
    from aotc.authoring.policy_answers import policy_answer
    from aotc.verification.policy.host_trust import resolve
    from aotc.verification.policy.policy_document import read_policy

    trust = resolve(policy, remember=False)
    file = read_policy(policy)
    signed_by = trust.policy.roots if trust.policy else ()
    answer = policy_answer(file, signed_by=signed_by, checked=True, findings=trust.findings)
    return _show(answer, json)


def _explain_arguments(parser: Parser) -> None:
    _add_policy(parser)
    add_artifact(parser)
    add_channel(parser)
    parser.add_argument(
        "--target", metavar="NAME|FILE", default="host", help="host to judge for; this by default"
    )
    add_json(parser)


def explain(*, policy: Path, artifact: Path, channel: str | None, target: str, json: bool) -> int:
    """Which rule of a policy decides of an artifact, and why; nothing is remembered.

    Exit status 0 where the artifact would be taken, 1 where not.
    """
    from aotc.contract.builtin import load_target
    from aotc.verification.gate import verify
    from aotc.verification.policy.host_trust import resolve

    described = None if target == "host" else load_target(target)
    trust = resolve(policy, channel=channel, target=described, remember=False)
    report = verify(artifact, trust=trust, target=target)
    if json:
        from aotc.cli.json_document import write_document

        write_document(report)
    else:
        from aotc.cli.render import show
        from aotc.cli.views.policy_views import decision_view
        from aotc.cli.views.verification_view import verify_view

        show([*verify_view(report), *decision_view(report.policy)])
    return EXIT_YES if report.policy is not None and report.policy.accepted else EXIT_NO


def _sign_arguments(parser: Parser) -> None:
    _add_policy(parser)
    parser.add_argument(
        "--key", metavar="FILE", type=Path, required=True, help="private key of a root, or signer"
    )
    add_json(parser)


def sign(*, policy: Path, key: Path, json: bool) -> int:
    """Sign a policy with a root key; the signature is a file beside it.

    Every root signs the same bytes: a policy that is changed afterwards needs all of them anew.
    """
    from aotc.authoring.policy_signing import sign_policy_file

    return _show(sign_policy_file(policy, key), json)


def _add_policy(parser: Parser) -> None:
    parser.add_argument("policy", metavar="POLICY", type=Path, help="the policy, trust.yaml")


def _add_force(parser: Parser) -> None:
    parser.add_argument("--force", action="store_true", help="replace a file that is there")


def _add_change(parser: Parser) -> None:
    """The changes that a policy takes; `authoring.requested_change` reads them."""
    key = parser.add_argument_group("a key, or a certificate authority")
    key.add_argument("--id", help="its name in the policy; one of that name is replaced")
    key.add_argument("--key", metavar="PUB", type=Path, help="public key")
    key.add_argument("--authority", metavar="CERT", type=Path, help="certificate of an authority")
    key.add_argument("--usage", metavar="KIND[,KIND]", help="what it may sign, such as approval")
    key.add_argument("--valid-from", metavar="MOMENT", help="such as 2027-01-31")
    key.add_argument("--valid-until", metavar="MOMENT")
    rule = parser.add_argument_group("a rule")
    rule.add_argument("--rule", metavar="NAME", help="its name; one of that name is replaced")
    rule.add_argument("--match", metavar="PATTERN", help="of artifacts' names; all by default")
    rule.add_argument("--match-channel", metavar="PATTERN", help="of channels; all by default")
    rule.add_argument(
        "--require",
        metavar="KIND:ID[,ID][:N]",
        action="append",
        default=[],
        help="an attestation by N of these keys; may be repeated",
    )
    rule.add_argument("--min-version", metavar="VERSION")
    other = parser.add_argument_group("other changes")
    other.add_argument("--revoke-artifact", metavar="SHA256", action="append", default=[])
    other.add_argument(
        "--revoke-key",
        metavar="ID[=REASON]",
        action="append",
        default=[],
        help="a name in the policy, or the sha256 of a public key's PEM",
    )
    other.add_argument(
        "--allow-rollback",
        metavar="SHA256",
        action="append",
        default=[],
        help="an artifact that is taken though a later release was seen",
    )
    other.add_argument("--expires", metavar="MOMENT", help="of the policy")
    other.add_argument(
        "--name", help="a new name of the policy, which then states that it replaces the old one"
    )


def _show(answer: TrustReport, json: bool) -> int:
    from aotc.cli.views.policy_views import policy_view

    respond(answer, policy_view, json=json)
    return EXIT_YES


command = Group(
    "Make, sign, check and explain policies of whom to trust with what.",
    {
        "init": ("Write a first policy.", Command(init, _init_arguments)),
        "add": ("Add keys, rules and revocations.", Command(add, _add_arguments)),
        "check": ("Check a policy as this host would.", Command(check, _check_arguments)),
        "explain": ("Show which rule decides, and why.", Command(explain, _explain_arguments)),
        "sign": ("Sign a policy with a root key.", Command(sign, _sign_arguments)),
        "root": ("Write a host's file of root keys.", Command(root, _root_arguments)),
    },
)
