"""What `aotc install`, `store`, `pack` and `unpack` show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.base.text import size
from aotc.cli.terminal import count, facts, findings_view, heading, sections, short, to_minute
from aotc.spec.command_reports import (
    InstallReport,
    PackReport,
    StoreListReport,
    StorePruneReport,
    UnpackReport,
)

if TYPE_CHECKING:
    from rich.console import RenderableType


def install_view(report: InstallReport) -> list[RenderableType]:
    """What was installed, and where."""
    status = (
        "installed"
        if report.installed
        else "was there, and is as it was verified; the payload at the path was not read"
    )
    added = count(len(report.attestations), "attestation")
    rows = [
        ("artifact", report.artifact_id),
        ("store", report.store),
        ("size", size(report.bytes)),
        ("added", f"{added}: {', '.join(report.attestations)}" if report.attestations else ""),
    ]
    return [
        heading(f"artifact {report.name}", status),
        facts(rows),
        *findings_view(report.findings),
    ]


def list_view(answer: StoreListReport) -> list[RenderableType]:
    """What a store holds."""
    status = f"{count(len(answer.entries), 'artifact')}, {size(answer.bytes)}"
    rows = [
        (
            short(entry.artifact_id),
            entry.name or "unreadable",
            size(entry.bytes),
            str(entry.attestations),
            to_minute(entry.installed_at),
            to_minute(entry.used_at),
            "yes" if entry.in_use else "",
        )
        for entry in answer.entries
    ]
    columns = ("name", "size", "bundles", "installed, UTC", "last used", "in use")
    return [heading(answer.store, status), *sections("artifacts", columns, rows)]


def prune_view(report: StorePruneReport) -> list[RenderableType]:
    """What was removed, and what is left."""
    rows = [
        ("removed", f"{len(report.removed)}, {size(report.removed_bytes)}"),
        ("kept", f"{report.kept}, {size(report.kept_bytes)}"),
        ("kept, as in use", ", ".join(short(artifact_id) for artifact_id in report.in_use)),
        ("leftovers removed", str(report.leftovers or "")),
    ]
    return [heading(report.store), facts(rows)]


def packing_view(
    report: PackReport | UnpackReport, written: str, done: str
) -> list[RenderableType]:
    """What `aotc pack` and `aotc unpack` wrote."""
    rows = [("artifact", report.artifact_id), ("size", size(report.bytes))]
    return [heading(written, f"{count(report.files, 'file')} {done}"), facts(rows)]
