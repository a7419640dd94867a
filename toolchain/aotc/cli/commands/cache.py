"""`aotc cache`: what earlier builds left for later ones, and room for more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli.commands.base import respond
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import Json, byte_count

if TYPE_CHECKING:
    from aotc.report.sheet import Sheet
    from aotc.spec.command_reports import CacheListReport, PruneReport


app = new_app("List, prune and clear the build cache.")


@app.command("list", cls=Command)
@examples("aotc cache list", "aotc cache list --json")
def list_entries(json: Json = False) -> int:
    """List the entries.

    The entry that was used last comes first. Nothing is verified. The cache is in $AOTC_CACHE, or
    aotc/build in $XDG_CACHE_HOME or ~/.cache. It may hold $AOTC_CACHE_BYTES bytes, or 10 GiB.
    """
    from aotc.pipeline.cache import BuildCache
    from aotc.spec.command_reports import CacheListReport

    cache = BuildCache()
    entries = tuple(cache.entries())
    answer = CacheListReport(
        folder=str(cache.folder),
        limit_bytes=cache.limit_bytes,
        bytes=sum(entry.bytes for entry in entries),
        entries=entries,
    )
    respond(answer, list_view, json=json)
    return EXIT_YES


@app.command(cls=Command)
@examples("aotc cache prune", "aotc cache prune --limit 500MB")
def prune(
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="SIZE",
            parser=byte_count,
            help="bytes to keep at most, such as 500MB",
            show_default="$AOTC_CACHE_BYTES, or 10 GiB",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Remove the least recently used entries.

    Entries are removed until the rest is within the limit. What interrupted builds left is removed
    too.
    """
    from aotc.pipeline.cache import BuildCache

    return _report(BuildCache().prune(limit), json)


@app.command(cls=Command)
@examples("aotc cache clear", "aotc cache clear --json")
def clear(json: Json = False) -> int:
    """Remove every entry.

    The next builds compile everything again.
    """
    from aotc.pipeline.cache import BuildCache

    return _report(BuildCache().clear(), json)


def list_view(answer: CacheListReport) -> Sheet:
    """How much of the cache is taken, and by what."""
    from aotc.base.text import size
    from aotc.report.sheet import Heading, count, short, table, to_minute

    number = len(answer.entries)
    entries = "1 entry" if number == 1 else f"{number} entries"
    status = f"{entries}, {size(answer.bytes)} of {size(answer.limit_bytes)}"
    rows = table(
        "entries",
        answer.entries,
        ("key", lambda entry: short(entry.key)),
        ("", lambda entry: entry.title),
        ("kind", lambda entry: entry.kind),
        ("size", lambda entry: size(entry.bytes)),
        ("", lambda entry: count(entry.files, "file")),
        ("created, UTC", lambda entry: to_minute(entry.created_at)),
        ("last used", lambda entry: to_minute(entry.used_at)),
    )
    return [Heading(answer.folder, status), rows]


def prune_view(report: PruneReport) -> Sheet:
    """What was removed, and what is left."""
    from aotc.base.text import size
    from aotc.report.sheet import Facts, Heading

    rows = [
        ("removed", f"{report.removed}, {size(report.removed_bytes)}"),
        ("kept", f"{report.kept}, {size(report.kept_bytes)}"),
        ("leftovers removed", str(report.leftovers or "")),
    ]
    return [Heading(report.folder), Facts(rows)]


def _report(report: PruneReport, json: bool) -> int:
    respond(report, prune_view, json=json)
    return EXIT_YES
