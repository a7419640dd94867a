"""`aotc trust`: policies of whom to trust with what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aotc.cli.commands.base import (
    Command,
    Group,
    Parser,
    add_artifact,
    add_channel,
    add_json,
    pairs,
    positive,
)
from aotc.contract.trust_answers import RootAnswer, TrustAnswer
from aotc.errors import EXIT_NO, EXIT_YES, AotcError

if TYPE_CHECKING:
    from aotc.contract.trust_policy import PolicyKey
    from aotc.verification.policy.document import PolicyFile


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
    add_json(parser)


def init(*, output: Path, name: str, signer: list[str], days: int, json: bool) -> int:
    """Write a first policy: any of the signers vouches for every artifact.

    Add keys and rules with 'aotc trust add' or an editor, then have root keys sign it.
    """
    from aotc.verification.policy.editing import new_policy, write_policy

    signers = [(each, _pem(Path(path))) for each, path in pairs(signer, "--signer").items()]
    return _answer(write_policy(output, new_policy(name, signers, days), new=True), json)


def _root_arguments(parser: Parser) -> None:
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, default=Path("root.yaml"), help="to write"
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
    add_json(parser)


def root(*, output: Path, key: list[Path], threshold: int, json: bool) -> int:
    """Write a host's file of root keys: put it at /etc/aotc/root.yaml, owned by root.

    Where a host has one, only policies that enough of the roots signed are taken there.
    """
    from aotc.signing.keys import key_id
    from aotc.verification.policy.document import read_roots
    from aotc.verification.policy.editing import write_roots

    write_roots(output, [_pem(each) for each in key], threshold)
    found = read_roots(output)
    answer = RootAnswer(
        file=str(output), threshold=threshold, keys=tuple(key_id(pem) for pem in found.keys)
    )
    if json:
        from aotc.cli.document import write_document

        write_document(answer)
    else:
        from aotc.cli.policy_views import root_view
        from aotc.cli.render import show

        show(root_view(answer))
    return EXIT_YES


def _add_arguments(parser: Parser) -> None:
    _add_policy(parser)
    key = parser.add_argument_group("a key, or a certificate authority")
    key.add_argument("--id", default="", help="its name in the policy")
    key.add_argument("--key", metavar="PUB", type=Path, help="public key")
    key.add_argument("--authority", metavar="CERT", type=Path, help="certificate of an authority")
    key.add_argument(
        "--usage", metavar="KIND[,KIND]", default="", help="what it may sign, such as approval"
    )
    key.add_argument("--valid-from", metavar="TIME", help="such as 2027-01-31T00:00:00Z")
    key.add_argument("--valid-until", metavar="TIME")
    rule = parser.add_argument_group("a rule")
    rule.add_argument("--rule", metavar="NAME", help="its name; one of that name is replaced")
    rule.add_argument("--match", metavar="PATTERN", default="*", help="of artifacts' names")
    rule.add_argument("--match-channel", metavar="PATTERN", default="*", help="of channels")
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
    other.add_argument("--revoke-key", metavar="ID", action="append", default=[])
    other.add_argument(
        "--allow-rollback",
        metavar="SHA256",
        action="append",
        default=[],
        help="an artifact that is taken though a later release was seen",
    )
    other.add_argument("--expires", metavar="TIME", help="of the policy")
    add_json(parser)


def add(
    *,
    policy: Path,
    id: str,
    key: Path | None,
    authority: Path | None,
    usage: str,
    valid_from: str | None,
    valid_until: str | None,
    rule: str | None,
    match: str,
    match_channel: str,
    require: list[str],
    min_version: str | None,
    revoke_artifact: list[str],
    revoke_key: list[str],
    allow_rollback: list[str],
    expires: str | None,
    json: bool,
) -> int:
    """Add keys, rules and revocations to a policy, which gets the next sequence.

    Comments in the file are not kept, and signatures no longer hold: have it signed again.
    """
    from aotc.contract.trust_policy import Match, Revoked, Rule
    from aotc.verification.policy.document import read_policy
    from aotc.verification.policy.editing import Change, changed, requirement, write_policy

    period = (valid_from, valid_until)
    change = Change(
        keys=(_key(id, _pem(key), usage, period),) if key else (),
        authorities=(_key(id, _text(authority), usage, period),) if authority else (),
        rules=(
            Rule(
                name=rule,
                match=Match(name=match, channel=match_channel),
                require=tuple(requirement(each) for each in require),
                min_version=min_version,
            ),
        )
        if rule
        else (),
        revoked=Revoked(artifacts=tuple(revoke_artifact), keys=tuple(revoke_key)),
        rollback=tuple(allow_rollback),
        expires=expires,
    )
    if change == Change():
        raise AotcError(
            "AOTC-I027", "nothing to add was given", mend="See 'aotc trust add --help'."
        )
    written = write_policy(policy, changed(read_policy(policy).policy, change), new=False)
    return _answer(written, json)


def _check_arguments(parser: Parser) -> None:
    _add_policy(parser)
    add_json(parser)


def check(*, policy: Path, json: bool) -> int:
    """Whether a policy can be used on this host now: its form, signatures, period and sequence.

    Nothing is remembered.
    """
    from aotc.verification.policy.document import read_policy
    from aotc.verification.policy.trust import resolve

    trust = resolve(policy, remember=False)
    file = read_policy(policy)
    return _answer(file, json, trust.policy.roots if trust.policy else (), checked=True)


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
    from aotc.contract.documents import load_target
    from aotc.verification.gate import verify
    from aotc.verification.policy.trust import resolve

    described = None if target == "host" else load_target(target)
    trust = resolve(policy, channel=channel, target=described, remember=False)
    report = verify(artifact, trust=trust, target=target)
    if json:
        from aotc.cli.document import write_document

        write_document(report)
    else:
        from aotc.cli.policy_views import decision_view
        from aotc.cli.render import show
        from aotc.cli.views import verify_view

        show([*decision_view(report.policy), *verify_view(report)])
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
    from aotc.signing.keys import load_signer
    from aotc.verification.policy.document import read_policy
    from aotc.verification.policy.editing import write
    from aotc.verification.policy.roots import bundle_path, sign_policy

    file = read_policy(policy)
    signer = load_signer(key)
    place = bundle_path(policy, signer.key_id)
    write(place, sign_policy(file, signer), new=False)
    return _answer(file, json, (signer.key_id,), bundle=str(place))


def _add_policy(parser: Parser) -> None:
    parser.add_argument("policy", metavar="POLICY", type=Path, help="the policy, trust.yaml")


def _key(name: str, pem: str, usage: str, period: tuple[str | None, str | None]) -> PolicyKey:
    from aotc.contract.parsing import ParseError, decode
    from aotc.contract.trust_policy import PolicyKey

    stated = {"id": name, "pem": pem, "usage": [each for each in usage.split(",") if each]}
    stated.update(
        {
            field: value
            for field, value in zip(("valid_from", "valid_until"), period, strict=True)
            if value is not None
        }
    )
    try:
        return decode(PolicyKey, stated)
    except ParseError as error:
        raise AotcError(
            "AOTC-I027",
            "the key cannot be added so",
            where=f"--{error.problems[0].path.partition('[')[0].replace('_', '-')}",
            found=error.problems[0].what,
        ) from None


def _pem(path: Path) -> str:
    from aotc.signing.keys import load_public

    found = load_public(path, code="AOTC-I023")
    if len(found) != 1:
        raise AotcError(
            "AOTC-I023",
            "the file holds several keys",
            where=str(path),
            expected="one public key",
            found=str(len(found)),
        )
    return found[0].pem


def _text(path: Path) -> str:
    from aotc.verification.policy.document import read_bytes

    return read_bytes(path, "certificate").decode("utf-8", "replace")


def _answer(
    file: PolicyFile,
    json: bool,
    signed_by: tuple[str, ...] = (),
    *,
    bundle: str = "",
    checked: bool = False,
) -> int:
    answer = TrustAnswer(
        file=str(file.path),
        name=file.policy.name,
        sequence=file.policy.sequence,
        sha256=file.sha256,
        expires=file.policy.expires,
        rules=tuple(rule.name for rule in file.policy.rules),
        keys=tuple(each.id for each in file.policy.holders()),
        signed_by=signed_by,
        bundle=bundle,
        checked=checked,
    )
    if json:
        from aotc.cli.document import write_document

        write_document(answer)
    else:
        from aotc.cli.policy_views import policy_view
        from aotc.cli.render import show

        show(policy_view(answer))
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
