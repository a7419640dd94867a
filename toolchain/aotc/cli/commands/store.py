"""`aotc store`: what is in a store, and room for more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli.commands.base import refuse_two_stores, respond
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import Json, Store, SystemStore, byte_count, positive

if TYPE_CHECKING:
    from aotc.spec.command_reports import StorePruneReport


_DAY_SECONDS = 86_400

app = new_app("List, prune and remove what is in a store.")


@app.command("list", cls=Command)
@examples("aotc store list", "aotc store list --store store --json")
def list_entries(store: Store = None, system: SystemStore = False, json: Json = False) -> int:
    """List the artifacts.

    The artifact that was used last comes first. Nothing is verified.
    """
    from aotc.report.sheets.stores import list_view
    from aotc.runtime.store.pruning import list_store

    answer = list_store(_root(store, system))
    respond(
        answer, list_view, json=json, brief=lambda answer: [e.artifact_id for e in answer.entries]
    )
    return EXIT_YES


@app.command(cls=Command)
@examples("aotc store prune --limit 20GB", "aotc store prune --older-than 90 --store store")
def prune(
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="SIZE",
            parser=byte_count,
            help="bytes to keep at most, such as 20GB: the least recently used are removed first",
        ),
    ] = None,
    older_than: Annotated[
        int | None,
        typer.Option(
            "--older-than",
            metavar="DAYS",
            parser=positive,
            help="remove what was last used this many days ago, or earlier",
        ),
    ] = None,
    store: Store = None,
    system: SystemStore = False,
    json: Json = False,
) -> int:
    """Remove artifacts by size and by age.

    Artifacts in use are kept. Without --limit and --older-than, only what interrupted installations
    left is removed.
    """
    from aotc.runtime.store.pruning import prune as run_prune

    age = None if older_than is None else float(older_than * _DAY_SECONDS)
    return _report(run_prune(_root(store, system), limit=limit, age=age), json)


@app.command(cls=Command)
@examples(
    "aotc store remove $(aotc store list --json | jq -r .entries[-1].artifact_id)",
    "aotc store remove --store store "
    "$(aotc store list --store store --json | jq -r .entries[0].artifact_id)",
)
def remove(
    id: Annotated[
        str, typer.Argument(metavar="ID", help="id of the artifact, or its first digits")
    ],
    store: Store = None,
    system: SystemStore = False,
    json: Json = False,
) -> int:
    """Remove one artifact.

    An artifact that is in use is not removed.
    """
    from aotc.runtime.store.pruning import remove_entry

    return _report(remove_entry(_root(store, system), id), json)


def _root(store: Path | None, system: bool) -> Path:
    from aotc.runtime.store.installing import chosen_root

    refuse_two_stores(store, system)
    return chosen_root(store, system=system)


def _report(report: StorePruneReport, json: bool) -> int:
    from aotc.report.sheets.stores import prune_view

    respond(report, prune_view, json=json, brief=lambda report: str(report.removed_bytes))
    return EXIT_YES
