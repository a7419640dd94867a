"""What the manifests list beside all other areas: files by digest, fixtures, and findings."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.comparing.field_changes import change, changes_of
from aotc.comparing.opened_artifact import ArtifactContents
from aotc.comparing.variant_pairs import Pair
from aotc.contract.manifest.variant import Variant
from aotc.contract.results.diff_report import Change


def contents_changes(
    a: ArtifactContents, b: ArtifactContents, pairs: Sequence[Pair]
) -> tuple[Change, ...]:
    """Files whose bytes differ or that one has, fixtures, findings, and what variants read."""
    one, other = a.manifest, b.manifest
    found = [
        *changes_of(one.fixtures, other.fixtures, "fixtures"),
        *changes_of(one.findings, other.findings, "findings"),
    ]
    for pair in pairs:
        found += changes_of(_read(pair.a), _read(pair.b), subject=pair.label)
    files_a = {entry.path: entry.sha256 for entry in one.files}
    files_b = {entry.path: entry.sha256 for entry in other.files}
    for path in sorted({*files_a, *files_b}):
        if files_a.get(path) != files_b.get(path):
            found.append(change("sha256", files_a.get(path), files_b.get(path), path))
    return tuple(found)


def _read(variant: Variant) -> dict[str, object]:
    return {
        "model": variant.model,
        "weights": variant.weights,
        "files": variant.files,
        "shape_nodes_dropped": variant.shape_nodes_dropped,
    }


def manifest_changes(a: ArtifactContents, b: ArtifactContents) -> tuple[Change, ...]:
    """Of manifests that differ where no area looks: each field, or else their digests."""
    found = changes_of(a.manifest, b.manifest)
    return found or (change("sha256", a.artifact_id, b.artifact_id, "aotc.json"),)
