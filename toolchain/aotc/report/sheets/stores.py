"""What `aotc install`, `store`, `pack` and `unpack` show."""

from __future__ import annotations

from aotc.base.text import size
from aotc.report.sheet import Facts, Heading, Sheet, count, findings_table, short, table, to_minute
from aotc.spec.command_reports import (
    InstallReport,
    PackReport,
    StoreListReport,
    StorePruneReport,
    UnpackReport,
)


def install_view(report: InstallReport) -> Sheet:
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
        Heading(f"artifact {report.name}", status),
        Facts(rows),
        findings_table(report.findings),
    ]


def list_view(answer: StoreListReport) -> Sheet:
    """What a store holds."""
    status = f"{count(len(answer.entries), 'artifact')}, {size(answer.bytes)}"
    artifacts = table(
        "artifacts",
        answer.entries,
        ("id", lambda entry: short(entry.artifact_id)),
        ("name", lambda entry: entry.name or "unreadable"),
        ("size", lambda entry: size(entry.bytes)),
        ("bundles", lambda entry: str(entry.attestations)),
        ("installed, UTC", lambda entry: to_minute(entry.installed_at)),
        ("last used", lambda entry: to_minute(entry.used_at)),
        ("in use", lambda entry: "yes" if entry.in_use else ""),
    )
    return [Heading(answer.store, status), artifacts]


def prune_view(report: StorePruneReport) -> Sheet:
    """What was removed, and what is left."""
    rows = [
        ("removed", f"{len(report.removed)}, {size(report.removed_bytes)}"),
        ("kept", f"{report.kept}, {size(report.kept_bytes)}"),
        ("kept, as in use", ", ".join(short(artifact_id) for artifact_id in report.in_use)),
        ("leftovers removed", str(report.leftovers or "")),
    ]
    return [Heading(report.store), Facts(rows)]


def packing_view(report: PackReport | UnpackReport, written: str, done: str) -> Sheet:
    """What `aotc pack` and `aotc unpack` wrote."""
    rows = [("artifact", report.artifact_id), ("size", size(report.bytes))]
    return [Heading(written, f"{count(report.files, 'file')} {done}"), Facts(rows)]
