"""A whole payload from the build cache, and into it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aotc.caching.cache import ARTIFACT, BuildCache
from aotc.contract.codec.parsing import Json, ParseError, decode, encode
from aotc.contract.finding import Finding
from aotc.contract.results.build_evidence import Evidence
from aotc.records import record
from aotc.stages.build_options import BuildOptions
from aotc.stages.reuse.build_key import artifact_key_parts
from aotc.stages.types import Artifact


@record(kw_only=False)
class CachedBuild:
    """Where one build is or will be in the cache."""

    cache: BuildCache
    key: str
    title: str


def place_of(source: str | None, name: str, options: BuildOptions) -> CachedBuild | None:
    """The place of a build of the model with this digest; None without cache or digest."""
    if options.cache is None or source is None:
        return None
    parts = artifact_key_parts(source, name, options)
    if parts is None:
        return None
    title = f"{name}, profile {options.profile.name}"
    return CachedBuild(options.cache, options.cache.key(ARTIFACT, parts), title)


def take(place: CachedBuild, folder: Path) -> tuple[Artifact, Evidence] | None:
    """The artifact, its payload in `folder/payload` and digests checked; None: it is not there."""
    payload = folder / "payload"
    payload.mkdir(parents=True)
    document = place.cache.get(place.key, payload)
    if document is None:
        payload.rmdir()
        folder.rmdir()
        return None
    try:
        evidence = decode(Evidence, document["evidence"])
        findings = tuple(decode(Finding, each) for each in document["findings"])
    except (ParseError, KeyError, TypeError) as error:
        raise RuntimeError(f"a cached build cannot be read: {error}") from error
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


def keep(place: CachedBuild, artifact: Artifact, evidence: Evidence) -> None:
    """Put a finished build into the cache."""
    document: Json = {
        "title": place.title,
        "evidence": encode(evidence),
        "findings": [encode(each) for each in artifact.findings],
        "digests": dict(artifact.digests),
        "payload_bytes": artifact.payload_bytes,
    }
    payload = artifact.folder / "payload"
    place.cache.put(
        place.key, payload, sorted(artifact.digests), document, digests=artifact.digests
    )
