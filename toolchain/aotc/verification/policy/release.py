"""Which of two releases of an artifact is the later one.

A version that the provenance states counts first, then the moment of the latest approval, then
the moment at which the build ended.  Those who approve decide what runs, so that approving an old
artifact anew makes it the current one; a version is their word only where they state one.
"""

from __future__ import annotations

import re

from aotc.contract.results.policy_decision import ArtifactRelease
from aotc.contract.trust.attestations import parse_instant
from aotc.contract.versions import RELEASE

_KINDS = ("built", "approved", "version")


def release_order(release: ArtifactRelease) -> tuple[int, tuple[float, ...]]:
    """What orders releases: the kind first, so that leaving a version out is no way around it.

    Raises ValueError where the value is none of its kind.
    """
    if release.kind == "version":
        return _KINDS.index(release.kind), _version(release.value)
    value = (parse_instant(release.value).timestamp(),) if release.value else ()
    return _KINDS.index(release.kind), value


def is_older(one: ArtifactRelease, other: ArtifactRelease) -> bool:
    """Whether `one` comes before `other`."""
    return release_order(one) < release_order(other)


def is_below(release: ArtifactRelease, least: str) -> bool:
    """Whether a release is below what a policy demands: a version, or a moment.

    What cannot be compared is below: a moment says nothing of a version.
    """
    if "T" in least:
        if release.kind == "version" or not release.value:
            return True
        return parse_instant(release.value) < parse_instant(least)
    return release.kind != "version" or _version(release.value) < _version(least)


def is_version(text: str) -> bool:
    """Whether a text orders releases; what is like no release is no version."""
    return re.fullmatch(RELEASE, text) is not None


def _version(text: str) -> tuple[float, ...]:
    if not is_version(text):
        raise ValueError(f"{text[:40]!r} is no version")
    parts = [int(part) for part in text.split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
