"""Versions of the wire formats, with their history.

A reader refuses another major version and an unknown required feature, and warns of a newer minor
version.
"""

from __future__ import annotations

import re

VERSION = "0.1.0"

# 2026-11-21  manifest 1.0: first.
# 2026-11-21  manifest 1.1: variants by bucket, padding, shapes of outputs.
# 2026-11-21  manifest 1.2: partitions, compiled parts in files, waivers, dropped variants.
# 2026-11-22  manifest 1.3: relations that are not enforced, ranges that end where all are largest.
# 2026-11-23  manifest 1.4: sizes captured as CUDA graphs, what passes matched and kept.
# 2026-11-23  manifest 1.5: how integer products are exact, gates of outputs, the verdict of a task,
#             variants that a fixture does not judge.
MANIFEST_SCHEMA = "aotc.manifest/1.5"

# Features that a reader must know to read an artifact correctly; an artifact with several variants
# by size, or with padding, requires `shape-routing`.  A reader without `captured-sizes` would
# replay a CUDA graph of one size for calls of another; one without `output-gates` would judge a
# load by the tolerance where a gate is stricter or stands instead; one without `fixture-variants`
# would judge variants by fixtures that they were not compared with.
KNOWN_FEATURES = frozenset(
    {
        "captured-sizes",
        "ep-context",
        "fixture-variants",
        "output-gates",
        "rejected-routes",
        "shape-domain",
        "shape-routing",
        "shared-weights",
    }
)

_VERSIONED = re.compile(r"(aotc\.[a-z-]+/|urn:aotc:[a-z-]+:v)([0-9]{1,9})(?:\.[0-9]{1,9})?")

# A release of an artifact: a version such as 1.4.0.
RELEASE = r"[0-9]{1,9}(\.[0-9]{1,9}){0,3}"


def manifest_version(schema: str) -> tuple[int, int] | None:
    """(major, minor) of a manifest's `schema`, or None if it is not a manifest's."""
    match = re.fullmatch(r"aotc\.manifest/([0-9]{1,4})\.([0-9]{1,4})", schema)
    return (int(match[1]), int(match[2])) if match else None


def is_newer(found: object, known: str) -> bool:
    """Whether `found` names a later major version of the schema or predicate type `known`."""
    ours, theirs = _VERSIONED.fullmatch(known), _VERSIONED.fullmatch(str(found))
    return (
        ours is not None
        and theirs is not None
        and theirs[1] == ours[1]
        and int(theirs[2]) > int(ours[2])
    )


def unsupported_reason(schema: object) -> str:
    """Why this release does not read a manifest with this `schema`, as a sentence.

    Empty if it does, or if the schema is not a manifest's.
    """
    version = manifest_version(schema) if isinstance(schema, str) else None
    if is_newer(schema, MANIFEST_SCHEMA):
        return "the artifact was made by a newer aotc"
    if version is not None and version[0] != (manifest_version(MANIFEST_SCHEMA) or version)[0]:
        return "the manifest's version is not supported"
    return ""


def release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, such as (1, 31, 1) for `1.31.1+cu13`.

    A number of more than 18 digits counts as 10^18, because Python refuses very long ones.
    """
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    parts = match[0].split(".") if match else []
    return tuple(int(part) if len(part) <= 18 else 10**18 for part in parts)
