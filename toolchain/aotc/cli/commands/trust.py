"""`aotc trust`: policies of whom to trust with what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from aotc.base.errors import EXIT_NO, EXIT_YES
from aotc.cli.commands.base import respond
from aotc.cli.grammar import Command, examples, exclusive, formerly, new_app
from aotc.cli.options import (
    AllowExpired,
    Artifact,
    Channel,
    Json,
    TargetHost,
    pairs,
    positive,
    usage_names,
)

if TYPE_CHECKING:
    from aotc.spec.command_reports import TrustReport


app = new_app("Make, sign, check and explain trust policies.")

_Policy = Annotated[
    Path, typer.Argument(metavar="POLICY", parser=Path, help="policy file, such as trust.yaml")
]
_Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="FILE", parser=Path, help="file to write")
]
_Force = Annotated[bool, typer.Option("--force", help="replace a file that exists")]


@app.command(cls=Command)
@exclusive("--expires", "--days")
@examples(
    "aotc trust init --name prod --signer release=release.pub -o policy.yaml",
    "aotc trust init --name prod --signer ci=release.pub --signer lab=second.pub -o policy.yaml",
)
def init(
    output: _Output = Path("trust.yaml"),
    *,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="name of the policy")],
    signer: Annotated[
        list[str],
        typer.Option(
            "--signer", metavar="ID=PUB", help="a builder's public key, under a name of yours"
        ),
    ],
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires",
            metavar="MOMENT",
            help="when it expires, such as 2027-01-31",
            show_default="in 90 days",
        ),
    ] = None,
    days: Annotated[
        int,
        typer.Option(
            "--days", metavar="DAYS", parser=positive, hidden=True, help="days until it expires"
        ),
    ] = 90,
    force: _Force = False,
    json: Json = False,
) -> int:
    """Write a first policy.

    Any of its signers vouches for every artifact. Add keys and rules with 'aotc trust add' or an
    editor, then have root keys sign it.
    """
    from aotc.trust.key_loading import load_one_public
    from aotc.trust.policy.authoring import new_policy, policy_report, write_policy

    stated = pairs(signer, "--signer")
    signers = [(id_, load_one_public(Path(path))) for id_, path in stated.items()]
    written = write_policy(output, new_policy(name, signers, days, expires), new=not force)
    return _show(policy_report(written), json)


@app.command(cls=Command)
@exclusive("--signer", "--key")
@exclusive("--signer", "--id")
@examples(
    "aotc trust add trust.yaml --signer qa=second.pub --usage approval",
    "aotc trust add trust.yaml --rule prod --match-channel prod --require oms:release",
)
def add(
    policy: _Policy,
    *,
    signer: NewSigner = None,
    authority: Authority = None,
    id: FormerKeyName = None,
    key: FormerPublicKey = None,
    usage: KeyUsage = None,
    valid_from: ValidFrom = None,
    valid_until: ValidUntil = None,
    rule: RuleName = None,
    match: NamePattern = None,
    match_channel: ChannelPattern = None,
    require: Requirements,
    min_version: MinimumVersion = None,
    repository: Repositories,
    revoke_artifact: RevokedArtifacts,
    revoke_key: RevokedKeys,
    allow_rollback: AllowedRollbacks,
    expires: PolicyExpiry = None,
    name: NewPolicyName = None,
    json: Json = False,
) -> int:
    """Add keys, rules and revocations.

    The policy gets the next sequence number. A MOMENT is a date (its beginning, UTC) or a time such
    as 2027-01-31T12:00:00Z. Comments in the file are lost, and its signatures become invalid: have
    it signed again.
    """
    from aotc.trust.policy.authoring import change_from_options, change_policy, policy_report
    from aotc.trust.policy.document import unmatched_revocations

    name_of_key, public = _named(signer, id, key)
    name_of_key, certificate = _named(authority, name_of_key, None)
    change = change_from_options(
        id=name_of_key,
        key=public,
        authority=certificate,
        usage=usage,
        valid_from=valid_from,
        valid_until=valid_until,
        rule=rule,
        match=match,
        match_channel=match_channel,
        require=require,
        min_version=min_version,
        repository=repository,
        revoke_artifact=revoke_artifact,
        revoke_key=revoke_key,
        allow_rollback=allow_rollback,
        expires=expires,
        name=name,
    )
    written = change_policy(policy, change)
    return _show(policy_report(written, findings=unmatched_revocations(written)), json)


@app.command(cls=Command)
@examples("aotc trust check trust.yaml", "aotc trust check trust.yaml --json")
def check(policy: _Policy, json: Json = False) -> int:
    """Check a policy as this host would.

    The schema, signatures, validity period and sequence are checked. Nothing is recorded in the
    trust state.
    """
    from aotc.trust.policy.authoring import policy_report
    from aotc.trust.policy.document import read_policy
    from aotc.trust.policy.host_trust import resolve

    trust = resolve(policy, remember=False)
    file = read_policy(policy)
    signed_by = trust.policy.roots if trust.policy else ()
    answer = policy_report(file, signed_by=signed_by, checked=True, findings=trust.findings)
    return _show(answer, json)


@app.command(cls=Command)
@examples(
    "aotc trust explain trust.yaml model.aotc",
    "aotc trust explain trust.yaml model.aotc --channel prod --json",
)
def explain(
    policy: _Policy,
    artifact: Artifact,
    channel: Channel = None,
    target: TargetHost = None,
    json: Json = False,
) -> int:
    """Show which rule decides, and why.

    The exit status is 0 if the policy accepts the artifact, else 1. Nothing is recorded in the
    trust state.
    """
    from aotc.report.sheets.trust import explained_view
    from aotc.spec.profile_files import load_target
    from aotc.trust.gate import verify
    from aotc.trust.policy.host_trust import resolve

    described = None if target in (None, "host", "none") else load_target(target)
    trust = resolve(policy, channel=channel, target=described, remember=False)
    report = verify(artifact, trust=trust, target=target)
    accepted = report.policy is not None and report.policy.accepted
    status = EXIT_YES if accepted else EXIT_NO
    said = "accepted" if accepted else "refused"
    respond(report, explained_view, json=json, brief=lambda _: said, status=status)
    return status


@app.command(cls=Command)
@examples(
    "aotc trust sign trust.yaml --key root.pem", "aotc trust sign trust.yaml --key root.pem --json"
)
def sign(
    policy: _Policy,
    key: Annotated[
        Path,
        typer.Option(
            "--key",
            metavar="FILE",
            parser=Path,
            help="private key of a root (.pem) or signer file (.yaml)",
        ),
    ],
    allow_expired: AllowExpired = False,
    json: Json = False,
) -> int:
    """Sign a policy with a root key.

    The signature is a file in the policy's folder. Every root signs the same bytes: a policy that
    is changed afterwards needs all of its signatures again.
    """
    from aotc.trust.policy.authoring import sign_policy_file

    return _show(sign_policy_file(policy, key, allow_expired=allow_expired), json)


@app.command(cls=Command)
@examples(
    "aotc trust root --name prod --key root.pub --threshold 1",
    "aotc trust root --name prod --key root.pub --key second.pub --threshold 2 -o roots.yaml",
)
@formerly(policy="name")
def root(
    output: _Output = Path("root.yaml"),
    *,
    policy: Annotated[
        str,
        typer.Option("--name", metavar="NAME", help="name of the one policy that the host accepts"),
    ],
    key: Annotated[
        list[Path],
        typer.Option("--key", metavar="PUB", parser=Path, help="public key of a root"),
    ],
    threshold: Annotated[
        int,
        typer.Option(
            "--threshold", metavar="N", parser=positive, help="roots that must sign a policy"
        ),
    ],
    force: _Force = False,
    json: Json = False,
) -> int:
    """Write a host's file of root keys.

    Put it at /etc/aotc/root.yaml, owned by root. A host that has one only accepts the policy of
    that name, or one that replaces it, and only if enough of the root keys signed it.
    """
    from aotc.report.sheets.trust import root_view
    from aotc.spec.command_reports import RootReport
    from aotc.spec.trust_anchors import key_id
    from aotc.trust.key_loading import load_one_public
    from aotc.trust.policy.authoring import write_roots
    from aotc.trust.policy.document import read_roots

    keys = [load_one_public(path) for path in key]
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


def _named(stated: str | None, id: str | None, path: Path | None) -> tuple[str | None, Path | None]:
    """The name and the file that `ID=FILE` states; a file alone has the name that is given."""
    if stated is None:
        return id, path
    name, equals, file = stated.partition("=")
    return (name, Path(file)) if equals and id is None else (id, Path(stated))


def _show(answer: TrustReport, json: bool) -> int:
    from aotc.report.sheets.trust import policy_view

    respond(answer, policy_view, json=json)
    return EXIT_YES


# Options of `aotc trust add`: what a policy is to hold, or to hold no longer.


_A_KEY: Final = "a key, or a certificate authority"
_A_RULE: Final = "a rule"
_OTHER: Final = "other changes"


def _option(panel: str, name: str, metavar: str, text: str, **more: Any) -> Any:
    return typer.Option(name, metavar=metavar, help=text, rich_help_panel=panel, **more)


NewSigner = Annotated[
    str | None,
    _option(
        _A_KEY, "--signer", "ID=PUB", "a public key under its name; one of that name is replaced"
    ),
]
Authority = Annotated[
    str | None,
    _option(_A_KEY, "--authority", "ID=CERT", "certificate of an authority, under its name"),
]
FormerKeyName = Annotated[str | None, _option(_A_KEY, "--id", "ID", "name of the key", hidden=True)]
FormerPublicKey = Annotated[
    Path | None, _option(_A_KEY, "--key", "PUB", "public key", hidden=True, parser=Path)
]
KeyUsage = Annotated[
    str | None,
    _option(
        _A_KEY,
        "--usage",
        "KIND[,KIND]",
        "what it may sign, such as approval",
        autocompletion=usage_names,
    ),
]
ValidFrom = Annotated[
    str | None,
    _option(_A_KEY, "--valid-from", "MOMENT", "when its validity begins, such as 2027-01-31"),
]
ValidUntil = Annotated[
    str | None, _option(_A_KEY, "--valid-until", "MOMENT", "when its validity ends")
]
RuleName = Annotated[
    str | None, _option(_A_RULE, "--rule", "NAME", "its name; one of that name is replaced")
]
NamePattern = Annotated[
    str | None,
    _option(
        _A_RULE, "--match", "PATTERN", "names of the artifacts that it is for", show_default="all"
    ),
]
ChannelPattern = Annotated[
    str | None,
    _option(_A_RULE, "--match-channel", "PATTERN", "channels that it is for", show_default="all"),
]
Requirements = Annotated[
    list[str],
    _option(
        _A_RULE,
        "--require",
        "KIND:ID[,ID][:N]",
        "an attestation by N of these keys",
        default_factory=list,
    ),
]
MinimumVersion = Annotated[
    str | None, _option(_A_RULE, "--min-version", "VERSION", "minimum release of the artifact")
]
Repositories = Annotated[
    list[str],
    _option(
        _A_RULE,
        "--repository",
        "PATTERN",
        "repository to take artifacts from that are in registries: HOST/REPOSITORY",
        default_factory=list,
        show_default="any",
    ),
]
RevokedArtifacts = Annotated[
    list[str],
    _option(
        _OTHER, "--revoke-artifact", "SHA256", "id of an artifact to revoke", default_factory=list
    ),
]
RevokedKeys = Annotated[
    list[str],
    _option(
        _OTHER,
        "--revoke-key",
        "ID[=REASON]",
        "key to revoke: a name in the policy, or the sha256 of a public key's PEM",
        default_factory=list,
    ),
]
AllowedRollbacks = Annotated[
    list[str],
    _option(
        _OTHER,
        "--allow-rollback",
        "SHA256",
        "artifact to accept even if a later release was seen",
        default_factory=list,
    ),
]
PolicyExpiry = Annotated[
    str | None, _option(_OTHER, "--expires", "MOMENT", "when the policy expires")
]
NewPolicyName = Annotated[
    str | None,
    _option(
        _OTHER,
        "--name",
        "NAME",
        "new name of the policy, which then states that it replaces the old one",
    ),
]
