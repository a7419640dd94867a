"""Options of `aotc trust add`: what a policy is to hold, or to hold no longer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from aotc.cli.grammar import suggestions

_A_KEY: Final = "a key, or a certificate authority"
_A_RULE: Final = "a rule"
_OTHER: Final = "other changes"

KeyName = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="ID",
        help="its name in the policy; one of that name is replaced",
        rich_help_panel=_A_KEY,
    ),
]
PolicyPublicKey = Annotated[
    Path | None,
    typer.Option("--key", metavar="PUB", parser=Path, help="public key", rich_help_panel=_A_KEY),
]
Authority = Annotated[
    Path | None,
    typer.Option(
        "--authority",
        metavar="CERT",
        parser=Path,
        help="certificate of an authority",
        rich_help_panel=_A_KEY,
    ),
]
KeyUsage = Annotated[
    str | None,
    typer.Option(
        "--usage",
        metavar="KIND[,KIND]",
        help="what it may sign, such as approval",
        rich_help_panel=_A_KEY,
        autocompletion=suggestions.usages,
    ),
]
ValidFrom = Annotated[
    str | None,
    typer.Option(
        "--valid-from",
        metavar="MOMENT",
        help="when its validity begins, such as 2027-01-31",
        rich_help_panel=_A_KEY,
    ),
]
ValidUntil = Annotated[
    str | None,
    typer.Option(
        "--valid-until",
        metavar="MOMENT",
        help="when its validity ends",
        rich_help_panel=_A_KEY,
    ),
]
RuleName = Annotated[
    str | None,
    typer.Option(
        "--rule",
        metavar="NAME",
        help="its name; one of that name is replaced",
        rich_help_panel=_A_RULE,
    ),
]
NamePattern = Annotated[
    str | None,
    typer.Option(
        "--match",
        metavar="PATTERN",
        help="names of the artifacts that it is for",
        show_default="all",
        rich_help_panel=_A_RULE,
    ),
]
ChannelPattern = Annotated[
    str | None,
    typer.Option(
        "--match-channel",
        metavar="PATTERN",
        help="channels that it is for",
        show_default="all",
        rich_help_panel=_A_RULE,
    ),
]
Requirements = Annotated[
    list[str],
    typer.Option(
        "--require",
        metavar="KIND:ID[,ID][:N]",
        default_factory=list,
        help="an attestation by N of these keys",
        rich_help_panel=_A_RULE,
    ),
]
MinimumVersion = Annotated[
    str | None,
    typer.Option(
        "--min-version",
        metavar="VERSION",
        help="minimum release of the artifact",
        rich_help_panel=_A_RULE,
    ),
]
RevokedArtifacts = Annotated[
    list[str],
    typer.Option(
        "--revoke-artifact",
        metavar="SHA256",
        default_factory=list,
        help="id of an artifact to revoke",
        rich_help_panel=_OTHER,
    ),
]
RevokedKeys = Annotated[
    list[str],
    typer.Option(
        "--revoke-key",
        metavar="ID[=REASON]",
        default_factory=list,
        help="key to revoke: a name in the policy, or the sha256 of a public key's PEM",
        rich_help_panel=_OTHER,
    ),
]
AllowedRollbacks = Annotated[
    list[str],
    typer.Option(
        "--allow-rollback",
        metavar="SHA256",
        default_factory=list,
        help="artifact to accept although a later release was seen",
        rich_help_panel=_OTHER,
    ),
]
PolicyExpiry = Annotated[
    str | None,
    typer.Option(
        "--expires",
        metavar="MOMENT",
        help="when the policy expires",
        rich_help_panel=_OTHER,
    ),
]
NewPolicyName = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="new name of the policy, which then states that it replaces the old one",
        rich_help_panel=_OTHER,
    ),
]
