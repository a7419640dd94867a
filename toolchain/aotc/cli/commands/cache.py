"""`aotc cache`: what earlier builds left for later ones, and room for more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.cli.commands.base import Command, Group, Parser, add_json, byte_count, respond
from aotc.contract.results.cache_reports import CacheListReport, PruneReport
from aotc.errors import EXIT_YES

if TYPE_CHECKING:
    from rich.console import RenderableType


def list_entries(*, json: bool) -> int:
    """List the entries of the build cache, the one used last first; nothing is verified.

    The cache is in $AOTC_CACHE, or aotc/build in $XDG_CACHE_HOME or ~/.cache.
    It may hold $AOTC_CACHE_BYTES bytes, or 10 GiB.
    """
    from aotc.caching.cache import BuildCache

    cache = BuildCache()
    entries = tuple(cache.entries())
    answer = CacheListReport(
        folder=str(cache.folder),
        limit_bytes=cache.limit_bytes,
        bytes=sum(each.bytes for each in entries),
        entries=entries,
    )
    respond(answer, list_view, json=json)
    return EXIT_YES


def _prune_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--limit",
        metavar="SIZE",
        type=byte_count,
        help="bytes that may be left, such as 500MB; else $AOTC_CACHE_BYTES, else 10 GiB",
    )
    add_json(parser)


def prune(*, limit: int | None, json: bool) -> int:
    """Remove what was used longest ago, until the rest is within the limit.

    What builds that died left half-written goes too.
    """
    from aotc.caching.cache import BuildCache

    return _report(BuildCache().prune(limit), json)


def clear(*, json: bool) -> int:
    """Remove every entry of the build cache; the next builds compile everything again."""
    from aotc.caching.cache import BuildCache

    return _report(BuildCache().clear(), json)


def list_view(answer: CacheListReport) -> list[RenderableType]:
    """How much of the cache is taken, and by what."""
    from aotc.cli.render import count, heading, section, short, size

    number = len(answer.entries)
    entries = "1 entry" if number == 1 else f"{number} entries"
    status = f"{entries}, {size(answer.bytes)} of {size(answer.limit_bytes)}"
    parts = [heading(answer.folder, status)]
    if answer.entries:
        rows = [
            (
                short(each.key),
                each.title,
                each.kind,
                size(each.bytes),
                count(each.files, "file"),
                _minute(each.created),
                _minute(each.used),
            )
            for each in answer.entries
        ]
        parts.append(
            section("entries", ("", "kind", "size", "", "created, UTC", "last used"), rows)
        )
    return parts


def _minute(moment: str) -> str:
    return moment[:16].replace("T", " ")


def prune_view(report: PruneReport) -> list[RenderableType]:
    """What was removed, and what is left."""
    from aotc.cli.render import facts, heading, size

    rows = [
        ("removed", f"{report.removed}, {size(report.removed_bytes)}"),
        ("kept", f"{report.kept}, {size(report.kept_bytes)}"),
        ("leftovers removed", str(report.leftovers or "")),
    ]
    return [heading(report.folder), facts(rows)]


def _report(report: PruneReport, json: bool) -> int:
    respond(report, prune_view, json=json)
    return EXIT_YES


command = Group(
    "List, prune and clear the build cache.",
    {
        "list": ("List the entries.", Command(list_entries, add_json)),
        "prune": ("Remove what was used longest ago.", Command(prune, _prune_arguments)),
        "clear": ("Remove every entry.", Command(clear, add_json)),
    },
)
