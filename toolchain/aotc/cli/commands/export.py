"""`aotc export`: a variant for software that opens it without aotc."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli.commands.base import respond
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import Artifact, Channel, Force, Json, NoTrustState, PublicKey, Trust

app = new_app()


def format_names(incomplete: str) -> list[str]:
    """The formats in which a variant is written."""
    from aotc.tools.export import FORMATS

    return [name for name in FORMATS if name.startswith(incomplete)]


@app.command(cls=Command)
@examples(
    "aotc export model.aotc -o plain --key release.pub",
    "aotc export model.aotc -o served --format triton --reverify --key release.pub",
)
def export(
    artifact: Artifact,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", parser=Path, help="folder to write"),
    ],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="form to write: onnx (model.onnx and weights, as ONNX Runtime opens them), "
            "triton (a model repository), kserve (one, and the manifests of a service)",
            autocompletion=format_names,
        ),
    ] = "onnx",
    variant: Annotated[
        str | None,
        typer.Option(
            "--variant",
            metavar="NAME",
            help="variant to write",
            show_default="what this host would load, else the first that needs no CPU feature",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="name of the model in a server",
            show_default="the artifact's",
        ),
    ] = None,
    reverify: Annotated[
        bool,
        typer.Option(
            "--reverify",
            help="also write what 'aotc verify --exported' verifies it by where it lies",
        ),
    ] = False,
    trust: Trust = None,
    key: PublicKey = None,
    unsafe_no_trust_state: NoTrustState = False,
    channel: Channel = None,
    force: Force = False,
    json: Json = False,
) -> int:
    """Write a variant for software that opens it without aotc.

    The artifact is verified first. What is written is checked by nobody from then on, as the
    README.md in it says: neither digests, host and placement, nor sizes and answers. With
    --reverify, signature and digests can be checked again where the files are served from.
    """
    from aotc.cli.progress import stages
    from aotc.report.sheets.stores import export_view
    from aotc.tools.export import export as write

    with stages(quiet=json) as progress:
        report = write(
            artifact,
            output,
            format=form,
            variant=variant,
            trust=trust,
            key=key,
            channel=channel,
            unsafe_no_trust_state=unsafe_no_trust_state,
            name=name,
            reverify=reverify,
            force=force,
            progress=progress,
        )
    respond(report, export_view, json=json)
    return EXIT_YES
