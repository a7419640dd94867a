"""What `aotc install`, `pull`, `push`, `store`, `cache`, `pack`, `export` and `merge` show."""

from __future__ import annotations

from aotc.base.text import size
from aotc.report.sheet import (
    Facts,
    Heading,
    Sheet,
    count,
    findings_table,
    first,
    short,
    table,
    to_minute,
)
from aotc.spec.command_reports import (
    CacheListReport,
    ExportReport,
    InstallReport,
    MergeReport,
    PackReport,
    PruneReport,
    PullReport,
    PushReport,
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


def pull_view(report: PullReport) -> Sheet:
    """What was pulled, from which digest, and where it is."""
    here = f", {size(report.bytes_present)} were here already" if report.bytes_present else ""
    added = count(len(report.attestations), "attestation")
    rows = [
        ("artifact", report.artifact_id),
        ("from", f"oci://{report.origin}"),
        ("store", report.store),
        ("at", "" if report.store else report.path),
        ("size", size(report.bytes)),
        ("fetched", f"{size(report.bytes_fetched)}{here}"),
        ("added", f"{added}: {', '.join(report.attestations)}" if report.attestations else ""),
    ]
    status = "pulled" if report.pulled else "was there, and is as it was verified"
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
    """What was removed of a store, and what is left."""
    in_use = ", ".join(short(artifact_id) for artifact_id in report.in_use)
    return _pruned(report.store, len(report.removed), report, in_use)


def pruned_cache_view(report: PruneReport) -> Sheet:
    """What was removed of the build cache, and what is left."""
    return _pruned(report.folder, report.removed, report)


def _pruned(
    place: str, removed: int, report: PruneReport | StorePruneReport, in_use: str = ""
) -> Sheet:
    rows = [
        ("removed", f"{removed}, {size(report.removed_bytes)}"),
        ("kept", f"{report.kept}, {size(report.kept_bytes)}"),
        ("kept, as in use", in_use),
        ("leftovers removed", str(report.leftovers or "")),
    ]
    return [Heading(place), Facts(rows)]


def cache_view(answer: CacheListReport) -> Sheet:
    """How much of the build cache is taken, and by what."""
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


def packing_view(report: PackReport | UnpackReport, written: str, done: str) -> Sheet:
    """What `aotc pack` and `aotc unpack` wrote."""
    rows = [("artifact", report.artifact_id), ("size", size(report.bytes))]
    return [Heading(written, f"{count(report.files, 'file')} {done}"), Facts(rows)]


def push_view(report: PushReport) -> Sheet:
    """What `aotc push` pushed, and how much of it the registry had."""
    had = [
        *([f"{size(report.bytes_present)} there"] if report.bytes_present else []),
        *([f"{size(report.bytes_mounted)} mounted"] if report.bytes_mounted else []),
    ]
    rows = [
        ("artifact", report.artifact_id),
        ("form", report.form),
        ("base", report.base),
        ("tags", ", ".join(report.tags)),
        ("beside it", count(report.attestations, "attestation")),
        ("size", f"{size(report.bytes)} in {count(report.layers, 'layer')}"),
        ("sent", ", ".join([size(report.bytes_sent), *had])),
    ]
    return [Heading(report.reference, "pushed"), Facts(rows)]


def merge_view(report: MergeReport) -> Sheet:
    """What `aotc merge` wrote, and from which artifacts each variant is."""
    saved = report.input_bytes - report.payload_bytes
    alike = "as one build on one of the hosts would have made it" if report.built_alike else ""
    only = " (this user's development key)" if report.development_key else ""
    rows = [
        ("artifact", report.artifact_id),
        ("payload", alike),
        ("signed by", f"{short(report.key_id)}{only}"),
        ("identity", report.identity),
        ("size", f"{size(report.payload_bytes)}, {size(max(0, saved))} less than the inputs"),
    ]
    merged = table(
        "variants",
        report.variants,
        ("name", lambda each: each.name),
        ("from", lambda each: ", ".join(each.artifacts)),
        ("", lambda each: "loaded here, fixtures ran" if each.runs_here else "for other hosts"),
    )
    return [
        Heading(report.artifact, f"merged from {count(len(report.merged), 'artifact')} and signed"),
        Facts(rows),
        merged,
        findings_table(report.findings),
    ]


def export_view(report: ExportReport) -> Sheet:
    """What `aotc export` wrote, and what nobody checks from then on."""
    rows = [
        ("artifact", report.artifact_id),
        ("variant", f"{report.variant}, {report.chosen}"),
        ("files", first(report.files, 6)),
        ("size", size(report.bytes)),
        (
            "not checked",
            "signature, digests, host, placement, sizes, golden answers: README.md says more",
        ),
    ]
    return [
        Heading(report.output, f"{count(len(report.files), 'file')} exported, as {report.format}"),
        Facts(rows),
        findings_table(report.findings),
    ]
