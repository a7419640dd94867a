"""`aotc store`: what is in a store, and room for more."""

from __future__ import annotations

from pathlib import Path

from aotc.cli.commands.base import (
    Command,
    Group,
    Parser,
    add_json,
    add_store,
    byte_count,
    positive,
    refuse_two_stores,
    respond,
)
from aotc.contract.results.store_reports import StorePruneReport
from aotc.errors import EXIT_YES

_DAY_SECONDS = 86_400


def _list_arguments(parser: Parser) -> None:
    add_store(parser)
    add_json(parser)


def list_entries(*, store: Path | None, system: bool, json: bool) -> int:
    """List the artifacts of a store, the one used last first; nothing is verified.

    Without --store or --system, the store is this user's own.
    """
    from aotc.cli.views.store_views import list_view
    from aotc.store.pruning import listed

    answer = listed(_root(store, system))
    respond(answer, list_view, json=json)
    return EXIT_YES


def _prune_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--limit",
        metavar="SIZE",
        type=byte_count,
        help="bytes that may be left, such as 20GB: what was used longest ago goes first",
    )
    parser.add_argument(
        "--older-than",
        metavar="DAYS",
        type=positive,
        help="remove what was used last so many days ago, or earlier",
    )
    add_store(parser)
    add_json(parser)


def prune(
    *, limit: int | None, older_than: int | None, store: Path | None, system: bool, json: bool
) -> int:
    """Remove artifacts by size and by age; what is in use stays.

    Without --limit and --older-than, only what installs that died left half-written is removed.
    """
    from aotc.store.pruning import prune as run_prune

    age = None if older_than is None else float(older_than * _DAY_SECONDS)
    return _report(run_prune(_root(store, system), limit=limit, age=age), json)


def _remove_arguments(parser: Parser) -> None:
    parser.add_argument("id", metavar="ID", help="id of the artifact, or its first digits")
    add_store(parser)
    add_json(parser)


def remove(*, id: str, store: Path | None, system: bool, json: bool) -> int:
    """Remove one artifact; one that is in use is refused."""
    from aotc.store.pruning import remove_entry

    return _report(remove_entry(_root(store, system), id), json)


def _root(store: Path | None, system: bool) -> Path:
    from aotc.store.installing import chosen_root

    refuse_two_stores(store, system)
    return chosen_root(store, system=system)


def _report(report: StorePruneReport, json: bool) -> int:
    from aotc.cli.views.store_views import prune_view

    respond(report, prune_view, json=json)
    return EXIT_YES


command = Group(
    "List, prune and remove what is in a store.",
    {
        "list": ("List the artifacts.", Command(list_entries, _list_arguments)),
        "prune": ("Remove artifacts by size and by age.", Command(prune, _prune_arguments)),
        "remove": ("Remove one artifact.", Command(remove, _remove_arguments)),
    },
)
