"""Options and arguments that several commands take, each with one meaning everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.cli.grammar import suggestions
from aotc.cli.grammar.typed_values import message_format, positive
from aotc.contract.artifact_names import artifact_path

_OWN_KEY = "this user's development key"
_NAME_OR_FILE = "NAME|FILE"

Json = Annotated[bool, typer.Option("--json", help="print one JSON document, and nothing else")]
Summary = Annotated[
    bool, typer.Option("--summary", help="show one screen: the result, and what matters most")
]
Force = Annotated[bool, typer.Option("--force", help="replace an output that exists")]

Reports = Annotated[
    list[str],
    typer.Option(
        "--report",
        metavar="FILE",
        default_factory=list,
        help="what was judged, whatever the outcome: .json, .md, .xml (JUnit), .sarif, "
        ".codequality.json (GitLab) or .html; - is JSON on standard output, -.md Markdown there",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="text|github",
        parser=message_format,
        help="github: also annotations of GitHub Actions, on standard error",
        show_default="github where GITHUB_ACTIONS is true, else text",
    ),
]

Artifact = Annotated[
    Path,
    typer.Argument(
        metavar="ARTIFACT",
        parser=artifact_path,
        help="NAME.aotc folder, packed file, or sha256-ID of an artifact in a store",
    ),
]
ArtifactFolder = Annotated[
    Path, typer.Argument(metavar="ARTIFACT", parser=artifact_path, help="NAME.aotc folder")
]

Trust = Annotated[
    Path | None,
    typer.Option(
        "--trust",
        metavar="FILE",
        parser=Path,
        help="trust policy, or list of public keys to trust",
        show_default=_OWN_KEY,
    ),
]
PublicKey = Annotated[
    Path | None,
    typer.Option(
        "--key", metavar="PUB", parser=Path, help="public key to trust", show_default=_OWN_KEY
    ),
]
NoTrustState = Annotated[
    bool,
    typer.Option(
        "--unsafe-no-trust-state",
        help="remember nothing of a policy, for a host where no file can be kept: an older policy "
        "or release may be accepted later",
    ),
]
Channel = Annotated[
    str | None,
    typer.Option(
        "--channel",
        metavar="NAME",
        help="channel that the trust policy judges for",
        show_default="the one that the artifact is approved for",
    ),
]

SigningKey = Annotated[
    Path | None,
    typer.Option(
        "--key",
        metavar="FILE",
        parser=Path,
        envvar="AOTC_SIGNING_KEY",
        help="signing key (.pem) or signer file (.yaml)",
        show_default=f"$AOTC_SIGNING_KEY, or {_OWN_KEY}",
    ),
]
Keyless = Annotated[
    bool,
    typer.Option(
        "--keyless",
        help="sign as an identity, with sigstore's services (extra: sigstore), which publish it",
    ),
]
IdentityToken = Annotated[
    Path | None,
    typer.Option(
        "--identity-token",
        metavar="FILE",
        parser=Path,
        help="OIDC token for --keyless",
        show_default="$SIGSTORE_ID_TOKEN, or the token of the CI job",
    ),
]
TrustConfig = Annotated[
    Path | None,
    typer.Option(
        "--trust-config",
        metavar="FILE",
        parser=Path,
        help="services for --keyless, a ClientTrustConfig in JSON",
        show_default="the public services",
    ),
]
VouchingKeys = Annotated[
    Path | None,
    typer.Option(
        "--trust",
        metavar="FILE",
        parser=Path,
        help="public keys, one of which must vouch for the artifact already",
        show_default=f"{_OWN_KEY} and the signing key",
    ),
]

Store = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="DIR",
        parser=Path,
        help="folder of the store",
        show_default="this user's store",
    ),
]
SystemStore = Annotated[
    bool,
    typer.Option(
        "--system", help="the system-wide store: $AOTC_SYSTEM_STORE, or /var/lib/aotc/store"
    ),
]
LoadingStore = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="DIR",
        parser=Path,
        help="the one store to load from, where ARTIFACT may be the sha256-ID of an entry",
        show_default="the system-wide store, or this user's",
    ),
]
TrustStore = Annotated[
    bool,
    typer.Option(
        "--trust-store",
        help="take what a system-wide store holds as verified at its installation, even if this "
        "process could have changed it",
    ),
]
Variants = Annotated[
    list[str],
    typer.Option(
        "--variant",
        metavar="NAME[,NAME]",
        default_factory=list,
        help="variants to load: a kind with all its buckets, or some buckets",
        show_default="all that run here",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        parser=positive,
        help="threads of one operator",
        show_default="one for each core",
    ),
]

Profile = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar=_NAME_OR_FILE,
        help="what to build: a built-in profile, or a file",
        autocompletion=suggestions.profiles,
    ),
]
TargetHost = Annotated[
    str,
    typer.Option(
        "--target",
        metavar=_NAME_OR_FILE,
        help="host to judge for: host (this machine), a built-in target, or a file",
        autocompletion=suggestions.targets,
    ),
]
