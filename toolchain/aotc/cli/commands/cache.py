"""`aotc cache`: what earlier builds left for later ones, and room for more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli.commands.base import respond
from aotc.cli.grammar import Command, examples, new_app
from aotc.cli.options import Json, byte_count

if TYPE_CHECKING:
    from aotc.spec.command_reports import PruneReport


app = new_app("List, prune and clear the build cache.")


@app.command("list", cls=Command)
@examples("aotc cache list", "aotc cache list --json")
def list_entries(json: Json = False) -> int:
    """List the entries.

    The entry that was used last comes first. Nothing is verified. The cache is in $AOTC_CACHE, or
    aotc/build in $XDG_CACHE_HOME or ~/.cache. It may hold $AOTC_CACHE_BYTES bytes, or 10 GiB.
    """
    from aotc.pipeline.cache import BuildCache
    from aotc.report.sheets.stores import cache_view
    from aotc.spec.command_reports import CacheListReport

    cache = BuildCache()
    entries = tuple(cache.entries())
    answer = CacheListReport(
        folder=str(cache.folder),
        limit_bytes=cache.limit_bytes,
        bytes=sum(entry.bytes for entry in entries),
        entries=entries,
    )
    respond(answer, cache_view, json=json, brief=lambda answer: [e.key for e in answer.entries])
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


def _report(report: PruneReport, json: bool) -> int:
    from aotc.report.sheets.stores import pruned_cache_view

    respond(report, pruned_cache_view, json=json, brief=lambda report: str(report.removed_bytes))
    return EXIT_YES
