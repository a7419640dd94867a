"""`aotc install`: into a store, from which later loads take it."""

from __future__ import annotations

from aotc.base.errors import EXIT_YES
from aotc.cli.commands.base import bars, refuse_two_stores, respond
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import (
    Artifact,
    Channel,
    Json,
    NoTrustState,
    PublicKey,
    Store,
    SystemStore,
    Trust,
)

app = new_app()


@app.command(cls=Command)
@examples(
    "aotc install model.aotc --key release.pub",
    "aotc install model.aotc --trust trust.yaml --store store",
)
def install(
    artifact: Artifact,
    store: Store = None,
    system: SystemStore = False,
    trust: Trust = None,
    key: PublicKey = None,
    unsafe_no_trust_state: NoTrustState = False,
    channel: Channel = None,
    json: Json = False,
) -> int:
    """Verify an artifact into a store, for later loads.

    It is verified while it is copied, with its attestations. Loads from a store that the user
    cannot write to do not hash it again. An artifact that is already in the store is hashed again,
    and new attestations are added to it.
    """
    refuse_two_stores(store, system)
    from aotc.report.sheets.stores import install_view
    from aotc.runtime.store.installing import install as put
    from aotc.trust.policy.host_trust import resolve

    trusted = resolve(trust, key, channel=channel, unsafe_no_trust_state=unsafe_no_trust_state)
    with bars(json=json):
        report = put(artifact, trusted, store=store, system=system)
    respond(report, install_view, json=json)
    return EXIT_YES
