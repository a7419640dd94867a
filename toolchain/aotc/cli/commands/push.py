"""`aotc push`: an artifact into a registry."""

from __future__ import annotations

from typing import Annotated

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli.commands.base import respond
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import Artifact, Json, PlainHttp, RegistryCa

app = new_app()


def form_names(incomplete: str) -> list[str]:
    """The forms that an artifact has in a registry."""
    from aotc.spec.registry_forms import FORMS

    return [name for name in FORMS if name.startswith(incomplete)]


@app.command(cls=Command)
@examples(
    "aotc push model.aotc oci://registry.example.com/models/shop:1.4",
    "aotc push model.aotc oci://localhost:5000/shop:1.4 --form image --tag latest",
)
def push(
    artifact: Artifact,
    reference: Annotated[
        str, typer.Argument(metavar="REF", help="oci://HOST/REPOSITORY:TAG to push to")
    ],
    tags: Annotated[
        list[str],
        typer.Option("--tag", metavar="TAG", default_factory=list, help="further tag to set"),
    ],
    mount_from: Annotated[
        list[str],
        typer.Option(
            "--mount-from",
            metavar="REPOSITORY",
            default_factory=list,
            help="repository of the registry whose layers need not be sent again",
        ),
    ],
    form: Annotated[
        str,
        typer.Option(
            "--form",
            metavar="NAME",
            help="modelpack (a file a layer), or image (layers below /models, for containers)",
            autocompletion=form_names,
        ),
    ] = "modelpack",
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="REF",
            help="image below the layers of --form image",
            show_default="none: the image has the model alone",
        ),
    ] = None,
    plain_http: PlainHttp = False,
    ca: RegistryCa = None,
    json: Json = False,
) -> int:
    """Push an artifact into an OCI registry.

    Its attestations are pushed beside it. What the registry has is not sent, so weights travel
    once. Nothing is verified here but the digests of what is sent: who pulls verifies.
    """
    from aotc.cli.progress import stages
    from aotc.report.sheets.stores import push_view
    from aotc.tools.pushing import push as write

    with stages(quiet=json) as progress:
        report = write(
            artifact,
            reference,
            form=form,
            base=base,
            tags=tags,
            mount_from=mount_from,
            plain_http=plain_http,
            ca=ca,
            progress=progress,
        )
    respond(report, push_view, json=json, brief=lambda pushed: pushed.reference)
    return EXIT_YES
