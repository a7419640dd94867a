"""`aotc pull`: an artifact from a registry, into a store or an output."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli.commands.base import refuse_two_stores, respond
from aotc.cli.grammar import Command, examples, exclusive, new_app
from aotc.cli.options import (
    Channel,
    Force,
    Json,
    NoTrustState,
    PlainHttp,
    PublicKey,
    Reference,
    RegistryCa,
    Store,
    SystemStore,
    Trust,
)

app = new_app()


@app.command(cls=Command)
@exclusive("--output", "--store")
@exclusive("--output", "--system")
@examples(
    "aotc pull oci://registry.example.com/models/shop:1.4 --key release.pub",
    "aotc pull oci://registry.example.com/models/shop:1.4 -o shop.aotc --trust trust.yaml",
)
def pull(
    reference: Reference,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="NAME.aotc|NAME.aotc.zip",
            parser=Path,
            help="folder or packed file to write",
            show_default="into the store",
        ),
    ] = None,
    store: Store = None,
    system: SystemStore = False,
    trust: Trust = None,
    key: PublicKey = None,
    unsafe_no_trust_state: NoTrustState = False,
    channel: Channel = None,
    plain_http: PlainHttp = False,
    ca: RegistryCa = None,
    force: Force = False,
    json: Json = False,
) -> int:
    """Fetch an artifact from a registry, verified while it comes.

    Signatures and the trust policy are judged before weights are fetched. It goes into the store,
    where later loads find it, or to -o. A tag is resolved once, and its digest is told. What a pull
    that was cut has fetched already, the next one does not fetch again.
    """
    refuse_two_stores(store, system)
    from aotc.cli.progress import stages
    from aotc.report.sheets.stores import pull_view
    from aotc.tools.pulling import pull as fetch

    with stages(quiet=json) as progress:
        report = fetch(
            reference,
            output,
            store=store,
            system=system,
            trust=trust,
            key=key,
            channel=channel,
            unsafe_no_trust_state=unsafe_no_trust_state,
            plain_http=plain_http,
            ca=ca,
            force=force,
            progress=progress,
        )
    respond(report, pull_view, json=json)
    return EXIT_YES
