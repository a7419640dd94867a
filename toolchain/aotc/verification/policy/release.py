"""The order of the releases of an artifact.

The version that the provenance states counts first, then the time of the latest approval, then the
time when the build ended.  Without versions, those who approve decide what runs: approving an old
artifact again makes it the current one.
"""

from __future__ import annotations

import re

from aotc.contract.results.policy_decision import ArtifactRelease
from aotc.contract.trust.attestations import parse_instant
from aotc.contract.versions import RELEASE

_KINDS = ("built", "approved", "version")


def release_order(release: ArtifactRelease) -> tuple[int, tuple[float, ...]]:
    """The sort key of releases: a version is later than none, so it cannot be omitted.

    Raises ValueError if the value is not valid for its kind.
    """
    if release.kind == "version":
        return _KINDS.index(release.kind), _version(release.value)
    value = (parse_instant(release.value).timestamp(),) if release.value else ()
    return _KINDS.index(release.kind), value


def is_older(one: ArtifactRelease, other: ArtifactRelease) -> bool:
    """Whether `one` is an older release than `other`."""
    return release_order(one) < release_order(other)


def is_below(release: ArtifactRelease, minimum: str) -> bool:
    """Whether a release is older than a policy's minimum, which is a version or a time.

    A release that cannot be compared with it counts as older.
    """
    if "T" in minimum:
        if release.kind == "version" or not release.value:
            return True
        return parse_instant(release.value) < parse_instant(minimum)
    return release.kind != "version" or _version(release.value) < _version(minimum)


def is_version(text: str) -> bool:
    """Whether a text is a version such as 1.4.0."""
    return re.fullmatch(RELEASE, text) is not None


def _version(text: str) -> tuple[float, ...]:
    if not is_version(text):
        raise ValueError(f"{text[:40]!r} is not a version")
    parts = [int(part) for part in text.split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
