"""`aotc debug`: where an artifact differs from the model that it was built from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.base.errors import EXIT_NO, EXIT_YES
from aotc.cli.commands.base import respond
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import Json, TrustSource
from aotc.spec.versions import artifact_path

app = new_app("Find where an artifact differs from the model that it was built from.")


@app.callback()
def debug() -> None:
    """Find where an artifact differs from the model that it was built from."""


@app.command(cls=Command)
@examples(
    "aotc debug parity model.aotc --model model.onnx",
    "aotc debug parity model.aotc --model model.onnx --variant portable -o failing",
)
def parity(
    artifact: Annotated[
        Path,
        typer.Argument(
            metavar="ARTIFACT",
            parser=artifact_path,
            help="NAME.aotc folder, packed file, or sha256-ID of an artifact in a store",
        ),
    ],
    model: Annotated[
        Path,
        typer.Option(
            "--model", metavar="MODEL", parser=Path, help="what it was built from"
        ),
    ],
    fixtures: Annotated[
        Path | None,
        typer.Option(
            "--fixtures",
            metavar="PATH",
            parser=Path,
            help="inputs: .npz, folder of such, or of ONNX test data",
            show_default="the artifact's",
        ),
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            "--variant",
            metavar="NAME",
            help="variant to compare",
            show_default="what this host would load",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FOLDER",
            parser=Path,
            help="folder to write the smallest failing part to, if an output fails",
        ),
    ] = None,
    trust_source: TrustSource = False,
    json: Json = False,
) -> int:
    """Compare a variant with its model, node by node.

    Each value that both compute is compared. If an output is out of tolerance, the exit status is
    1, and the smallest part that is out of tolerance by itself is searched for. Signatures are not
    checked: 'aotc verify' does that. The folder of -o contains weights of the model and values of
    the inputs: check it before you share it.
    """
    from aotc.cli.output import needs, refuse_overwriting
    from aotc.cli.progress import stages
    from aotc.report.sheets.variants import parity_view

    if output is not None:
        refuse_overwriting([("-o", output)], (artifact, model, fixtures))
    with needs("debug parity", "cpu"):
        from aotc.tools.debug_parity import debug_parity
    with stages(quiet=json) as progress:
        report = debug_parity(
            artifact,
            model,
            fixtures=fixtures,
            variant=variant,
            output=output,
            trust_source=trust_source,
            progress=progress,
        )
    status = EXIT_NO if report.failed else EXIT_YES
    said = "out of tolerance" if report.failed else "within tolerance"
    respond(report, parity_view, json=json, brief=lambda _: said, status=status)
    return status
