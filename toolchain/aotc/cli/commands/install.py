"""`aotc install`: into a store, from which later loads take it."""

from __future__ import annotations

from pathlib import Path

from aotc.cli.commands.base import (
    Command,
    Parser,
    add_artifact,
    add_channel,
    add_json,
    add_store,
    add_trust,
    refuse_two_stores,
    respond,
)
from aotc.errors import EXIT_YES


def arguments(parser: Parser) -> None:
    """Declare them."""
    add_artifact(parser)
    add_store(parser)
    add_trust(parser)
    add_channel(parser)
    add_json(parser)


def install(
    *,
    artifact: Path,
    store: Path | None,
    system: bool,
    trust: Path | None,
    key: Path | None,
    channel: str | None,
    unsafe_no_trust_state: bool,
    json: bool,
) -> int:
    """Verify an artifact while it is copied into a store, with its attestations.

    Without --store or --system, the store is this user's own. What users load from a store that
    they cannot write is not hashed again. An artifact that is there already is hashed again, and
    attestations that are new are added to it.
    """
    refuse_two_stores(store, system)
    from aotc.cli.views.store_views import install_view
    from aotc.store.installing import install as put
    from aotc.verification.policy.host_trust import resolve

    trusted = resolve(trust, key, channel=channel, unsafe_no_trust_state=unsafe_no_trust_state)
    report = put(artifact, trusted, store=store, system=system)
    respond(report, install_view, json=json)
    return EXIT_YES


command = Command(install, arguments)
