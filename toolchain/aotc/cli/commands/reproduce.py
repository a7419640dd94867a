"""`aotc reproduce`: an artifact built again from what it records, by whoever wants to know."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from aotc.base.errors import EXIT_NO, EXIT_YES, AotcError
from aotc.cli.commands.base import respond, signer_of
from aotc.cli.grammar import Command, current, examples, exclusive, new_app
from aotc.cli.options import (
    AllowExpired,
    Artifact,
    Force,
    IdentityToken,
    Json,
    Keyless,
    SigningKey,
    TrustConfig,
    TrustSource,
    VouchingKeys,
)

if TYPE_CHECKING:
    from aotc.spec.reproduction import BuildEnvironment, NotReproduced

app = new_app()

_ATTEST = "what is signed of it"


@app.command(cls=Command)
@exclusive("--key", "--keyless")
@exclusive("--allow-expired", "--keyless")
@exclusive("--here", "--anew")
@examples(
    "aotc reproduce model.aotc --model model.onnx --trust release.pub",
    "aotc reproduce model.aotc --model model.onnx --trust release.pub --attest --key second.pem",
)
def reproduce(
    artifact: Artifact,
    *,
    model: Annotated[
        Path,
        typer.Option(
            "--model", metavar="MODEL", parser=Path, help="model that the artifact was built from"
        ),
    ],
    fixtures: Annotated[
        Path | None,
        typer.Option(
            "--fixtures", metavar="PATH", parser=Path, help="inputs that the build compared on"
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration", metavar="PATH", parser=Path, help="samples that it quantized with"
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            parser=Path,
            help="folder of the files that the recorded profile names",
            show_default="the model's",
        ),
    ] = None,
    trust_source: TrustSource = False,
    here: Annotated[
        bool,
        typer.Option(
            "--here", help="build in this environment, and tell what of the recorded one it lacks"
        ),
    ] = False,
    anew: Annotated[
        bool,
        typer.Option(
            "--anew", help="make the recorded environment, even where this one is the same"
        ),
    ] = False,
    installer: Annotated[
        str | None,
        typer.Option(
            "--installer",
            metavar="pip|uv",
            help="what makes the recorded environment",
            show_default="pip, else uv",
        ),
    ] = None,
    aotc: Annotated[
        Path | None,
        typer.Option(
            "--aotc",
            metavar="PATH",
            parser=Path,
            help="checkout or wheel of the aotc that built it",
            show_default="this one, or the release",
        ),
    ] = None,
    trust: VouchingKeys = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="NAME.aotc",
            parser=Path,
            help="keep what was built, signed by a key that nobody has",
        ),
    ] = None,
    force: Force = False,
    attest: Annotated[
        bool,
        typer.Option(
            "--attest",
            help="add what was found to the artifact, unless the answers differ",
            rich_help_panel=_ATTEST,
        ),
    ] = False,
    key: SigningKey = None,
    allow_expired: AllowExpired = False,
    keyless: Keyless = False,
    identity_token: IdentityToken = None,
    trust_config: TrustConfig = None,
    builder_id: Annotated[
        str | None,
        typer.Option(
            "--builder-id",
            metavar="URI",
            help="who builds it again",
            show_default="$AOTC_BUILDER_ID, or urn:aotc:builder:local",
            rich_help_panel=_ATTEST,
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Build an artifact again from what it records, and compare.

    The recorded environment is made of wheels whose files are the recorded ones, unless this one is
    the same. What cannot be the same on this host is told before anything is built. The exit status
    is 1 unless all else is identical: then files, tensors and fields that differ are shown, and
    whether the answers are the same. --attest signs what was found, with another key than the
    artifact's.
    """
    from aotc.cli.output import needs
    from aotc.cli.progress import stages
    from aotc.report.sheets.reproductions import reproduced_view

    signer = None
    if attest:
        signer = signer_of(key, keyless, identity_token, trust_config, allow_expired=allow_expired)
    elif given := _of_attestation(key, keyless=keyless):
        raise AotcError("AOTC-I027", f"{given} needs --attest", where="aotc reproduce")
    with needs("reproduce", "cpu"):
        from aotc.tools.reproduce.rebuilding import reproduce as rebuild
    with stages(quiet=json) as progress:
        answer = rebuild(
            artifact,
            model,
            fixtures=fixtures,
            calibration=calibration,
            data=data,
            trust_source=trust_source,
            here=here,
            anew=anew,
            installer=_installer(installer),
            aotc=aotc,
            trust=trust,
            signer=signer,
            builder_id=builder_id,
            output=output,
            force=force,
            progress=progress,
            tell=None if json or current().quiet else _tell,
        )
    good = answer.outcome in ("identical", "in-part")
    status = EXIT_YES if good else EXIT_NO
    respond(answer, reproduced_view, json=json, status=status)
    return status


def _of_attestation(key: Path | None, *, keyless: bool) -> str:
    return "--key" if key is not None else "--keyless" if keyless else ""


def _installer(word: str | None) -> Literal["pip", "uv"] | None:
    known: dict[str | None, Literal["pip", "uv"] | None] = {None: None, "pip": "pip", "uv": "uv"}
    if word in known:
        return known[word]
    raise AotcError(
        "AOTC-I027",
        "this installs nothing",
        where="--installer",
        expected="pip or uv",
        found=word or "",
    )


def _tell(rows: Sequence[NotReproduced], environment: BuildEnvironment) -> None:
    """Tell on standard error what cannot be the same here, before anything is built."""
    import sys

    from aotc.cli.terminal import may_be_lost, show_sheet
    from aotc.report.sheets.reproductions import foreseen_view

    with may_be_lost(sys.stderr):
        show_sheet(foreseen_view(rows, environment), file=sys.stderr)
