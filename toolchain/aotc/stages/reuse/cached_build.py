"""Reading a complete payload from the build cache, and storing it there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aotc.caching.cache import ARTIFACT, BuildCache
from aotc.contract.codec.parsing import Json, ParseError, decode, encode
from aotc.contract.finding import Finding
from aotc.contract.results.build_evidence import Evidence
from aotc.contract.results.journal import Journal
from aotc.records import record
from aotc.stages.build_options import BuildOptions
from aotc.stages.reuse.build_key import artifact_key_parts
from aotc.stages.reuse.cached_gates import kept_judgements, tell_judgements
from aotc.stages.types import Artifact


@record(kw_only=False)
class CachedBuild:
    """The entry of one build in the cache, whether it exists or not."""

    cache: BuildCache
    key: str
    title: str


def cache_slot(source: str | None, name: str, options: BuildOptions) -> CachedBuild | None:
    """The cache entry for a model with the digest `source`; None without a cache or digest."""
    if options.cache is None or source is None:
        return None
    parts = artifact_key_parts(source, name, options)
    if parts is None:
        return None
    title = f"{name}, profile {options.profile.name}"
    return CachedBuild(options.cache, options.cache.key(ARTIFACT, parts), title)


def cached_artifact(
    slot: CachedBuild, folder: Path, options: BuildOptions
) -> tuple[Artifact, Evidence] | None:
    """The artifact, with a verified payload in `folder/payload`; None if it is not in the cache.

    What its first build judged and measured is written into the journal.
    """
    payload = folder / "payload"
    payload.mkdir(parents=True)
    document = slot.cache.get(slot.key, payload)
    if document is None:
        payload.rmdir()
        folder.rmdir()
        return None
    try:
        evidence = decode(Evidence, document["evidence"])
        findings = tuple(decode(Finding, finding) for finding in document["findings"])
        tell_judgements(document["judged"], options.journal, options.places)
    except (ParseError, KeyError, TypeError) as error:
        raise RuntimeError(f"a cached build cannot be read: {error}") from error
    options.journal.model_sha256 = evidence.model
    digests: Mapping[str, str] = document["digests"]
    artifact = Artifact(
        folder=folder,
        artifact_id=digests["aotc.json"],
        digests=digests,
        payload_bytes=document["payload_bytes"],
        proven=(),
        findings=findings,
    )
    return artifact, evidence


def store_build(
    slot: CachedBuild, artifact: Artifact, evidence: Evidence, journal: Journal
) -> None:
    """Store a finished build in the cache, with what was judged."""
    document: Json = {
        "title": slot.title,
        "evidence": encode(evidence),
        "findings": [encode(finding) for finding in artifact.findings],
        "judged": kept_judgements(journal),
        "digests": dict(artifact.digests),
        "payload_bytes": artifact.payload_bytes,
    }
    payload = artifact.folder / "payload"
    slot.cache.put(slot.key, payload, sorted(artifact.digests), document, digests=artifact.digests)
