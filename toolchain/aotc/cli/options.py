"""Options and arguments that several commands take, each with one meaning everywhere."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from aotc.base.errors import AotcError
from aotc.spec.versions import artifact_path

# Values that completion offers for an option or an argument, each with what it is.


def profile_names(incomplete: str) -> list[str]:
    """The built-in profiles whose names begin so."""
    from aotc.spec.profile_files import builtin_profiles

    return [name for name in builtin_profiles() if name.startswith(incomplete)]


def target_names(incomplete: str) -> list[str]:
    """The built-in targets whose names begin so, and this machine."""
    from aotc.spec.profile_files import builtin_targets

    return [name for name in ("host", *builtin_targets()) if name.startswith(incomplete)]


def verified_targets(incomplete: str) -> list[str]:
    """The targets that an artifact may be verified for, and none."""
    return [*target_names(incomplete), *(name for name in ("none",) if name.startswith(incomplete))]


def executor_names(incomplete: str) -> list[str]:
    """The executors whose names begin so."""
    from aotc.fleet.executors import EXECUTORS

    return [name for name in EXECUTORS if name.startswith(incomplete)]


def precision_names(incomplete: str) -> list[str]:
    """The precisions that a build may be asked for."""
    from aotc.spec.precision import WantedPrecision

    return [name for name in get_args(WantedPrecision) if name.startswith(incomplete)]


def random_policies(incomplete: str) -> list[str]:
    """What may hold for the random numbers of a model that is built."""
    from aotc.spec.profile import RandomPolicy

    return [name for name in get_args(RandomPolicy) if name.startswith(incomplete)]


def reason_codes(incomplete: str) -> list[tuple[str, str]]:
    """Reason codes and their titles, spelled as the word begins: `G005` or `AOTC-G005`."""
    from aotc.base.codes import REASONS

    word = incomplete.upper()
    prefix = "AOTC-" if word.startswith("A") or not word else ""
    spelled = ((f"{prefix}{code.removeprefix('AOTC-')}", REASONS[code]) for code in sorted(REASONS))
    return [(name, reason.title) for name, reason in spelled if name.startswith(word)]


def usage_names(incomplete: str) -> list[str]:
    """The kinds of attestations that a key may sign, after a comma the next one."""
    from aotc.spec.attestation_kinds import Usage

    before, comma, word = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in get_args(Usage) if name.startswith(word)]


def area_names(incomplete: str) -> list[str]:
    """The areas in which artifacts are compared, after a comma the next one."""
    from aotc.spec.diff_report import AREAS

    before, comma, word = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in AREAS if name.startswith(word)]


# Values of options and arguments: what a word must look like, and what it is read as.
#
# A reader of one word raises `typer.BadParameter`, and takes a default that is read already.


def positive(text: str | int) -> int:
    """A number that counts something."""
    word = str(text)
    if not (word.isascii() and word.isdigit() and len(word) < 19 and int(word) > 0):
        raise typer.BadParameter(f"{word!r} is not a positive number")
    return int(word)


def positive_real(text: str | float) -> float:
    """A number above zero, which need not be whole."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    # NaN is refused with what is not a number at all.
    if not 0 < number < math.inf:
        raise typer.BadParameter(f"{str(text)!r} is not a number above 0")
    return number


def byte_count(text: str | int) -> int:
    """A number of bytes, with or without a unit."""
    found = re.fullmatch(r"(\d{1,15})(?: ?([kMGT])(i?)B)?", str(text), re.ASCII)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a size such as 1000000, 500MB or 1GiB")
    number, unit, binary = found.groups()
    power = " kMGT".index(unit) if unit else 0
    return int(number) * int((1024 if binary else 1000) ** power)


def pairs(words: Iterable[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` words as a mapping; raises AOTC-I027."""
    found: dict[str, str] = {}
    for word in words:
        # A dim's name may hold '='; a value never does.
        name, _, value = word.rpartition("=")
        if not name or not value:
            raise AotcError("AOTC-I027", f"{option} takes NAME=VALUE", where=option, found=word)
        if name in found:
            raise AotcError("AOTC-I027", f"{name!r} is given twice", where=option, found=word)
        found[name] = value
    return found


def comma_separated(words: Sequence[str]) -> list[str] | None:
    """The names in `words`, each of which may hold several; None where there are none."""
    return [name for word in words for name in word.split(",") if name] or None


_OWN_KEY = "this user's development key"
_NAME_OR_FILE = "NAME|FILE"

Json = Annotated[bool, typer.Option("--json", help="print one JSON document, and nothing else")]
Summary = Annotated[
    bool, typer.Option("--summary", help="show one screen: the result and the most important facts")
]
TrustSource = Annotated[
    bool,
    typer.Option("--trust-source", help="run code of the source, where capturing it needs that"),
]
Force = Annotated[bool, typer.Option("--force", help="replace an output that exists")]

Reports = Annotated[
    list[str],
    typer.Option(
        "--report",
        metavar="FILE",
        default_factory=list,
        help="write a report, whatever the outcome: .json, .md, .xml (JUnit), .sarif, "
        ".codequality.json (GitLab) or .html; - is JSON on standard output, -.md Markdown there",
    ),
]
Format = Annotated[
    Literal["text", "github"] | None,
    typer.Option(
        "--format",
        metavar="text|github",
        help="github: also print GitHub Actions annotations on standard error",
        show_default="github where GITHUB_ACTIONS is true, else text",
    ),
]

Artifact = Annotated[
    Path,
    typer.Argument(
        metavar="ARTIFACT",
        parser=artifact_path,
        help="NAME.aotc folder, packed file, sha256-ID of an artifact in a store, or oci://HOST/"
        "REPOSITORY with :TAG or @sha256:DIGEST",
    ),
]
PlainHttp = Annotated[
    bool,
    typer.Option("--plain-http", help="speak HTTP without TLS to the registry"),
]
RegistryCa = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        parser=Path,
        help="certificates (.pem) to trust for the registry",
        show_default="$AOTC_OCI_CA, or the system's",
    ),
]
ArtifactFolder = Annotated[
    Path, typer.Argument(metavar="ARTIFACT", parser=artifact_path, help="NAME.aotc folder")
]
AttestedArtifact = Annotated[
    Path,
    typer.Argument(
        metavar="ARTIFACT", parser=artifact_path, help="NAME.aotc folder; with --push a reference"
    ),
]

Reference = Annotated[
    str,
    typer.Argument(
        metavar="REF",
        help="oci://HOST/REPOSITORY:TAG, or @sha256:DIGEST; oci:// may be left out",
    ),
]
Push = Annotated[
    bool,
    typer.Option("--push", help="add it to an artifact in a registry, whose reference ARTIFACT is"),
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
        help="keep no trust state, for a host where no file can be kept: an older policy "
        "or release may be accepted later",
    ),
]
Channel = Annotated[
    str | None,
    typer.Option(
        "--channel",
        metavar="NAME",
        help="channel for which the trust policy is applied",
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
AllowExpired = Annotated[
    bool,
    typer.Option(
        "--allow-expired", help="sign with a certificate that has expired, or is not valid yet"
    ),
]
Keyless = Annotated[
    bool,
    typer.Option(
        "--keyless",
        help="sign as an identity with sigstore (extra: sigstore), which makes the identity public",
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
        help="the only store to load from; ARTIFACT may be the sha256-ID of an entry",
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
        help="variants to load: a variant with all its buckets, or some of its buckets",
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


GivenInputs = Annotated[
    list[str],
    typer.Option(
        "--input",
        metavar="NAME=FILE|FILE.npz|FOLDER",
        default_factory=list,
        help="one input (.npy, .npz of one array or with one of this name, or .json for what "
        "those cannot hold), an archive of inputs by name, or a folder of ONNX test data",
        show_default="the artifact's fixtures, or made ones if it holds none",
    ),
]


def _as_stated(text: str) -> str:
    """The value as it is: of a configuration's, the profile was read already."""
    return text


Profile = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar=_NAME_OR_FILE,
        parser=_as_stated,
        help="what to build: a built-in profile, or a file",
        autocompletion=profile_names,
    ),
]
TargetHost = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar=_NAME_OR_FILE,
        help="host to verify for: host (this machine), a built-in target, a file, or none: "
        "authenticity alone",
        show_default="host; none where there is no ONNX Runtime",
        autocompletion=verified_targets,
    ),
]
