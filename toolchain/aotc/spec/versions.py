"""Versions of the wire formats, with their history, and names of artifacts by path or id.

A reader refuses another major version and an unknown required feature, and warns of a newer minor
version.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path


VERSION = "0.1.0"

# 2026-11-25  manifest 1.0: first.
MANIFEST_SCHEMA = "aotc.manifest/1.0"

# Features that a reader must know to read an artifact correctly; an artifact with several variants
# by size, or with padding, requires `shape-routing`.  A reader without `captured-sizes` would
# replay a CUDA graph of one size for calls of another; one without `captured-apart` would capture
# in one session what was seen to crash there; one without `output-gates` would judge a
# load by the tolerance where a gate is stricter or stands instead; one without `fixture-variants`
# would judge variants by fixtures that they were not compared with; one without `half-activations`
# would call the profile malformed; one without `random-seeds` would draw other numbers in each
# call; one without `stated-values` would pass on values that the profile excludes; one without
# `custom-ops` would not name the library that is missing; one without `merged-hosts` would judge
# variants of one host by the budgets of another.
KNOWN_FEATURES = frozenset(
    {
        "captured-apart",
        "captured-sizes",
        "custom-ops",
        "ep-context",
        "fixture-variants",
        "half-activations",
        "merged-hosts",
        "output-gates",
        "random-seeds",
        "rejected-routes",
        "shape-routing",
        "stated-values",
    }
)

# In the metadata of a graph whose every run draws its random numbers anew from their seeds.
DRAWS_KEY: Final = "aotc.random"
DRAWS_ANEW: Final = "seed"

_VERSIONED = re.compile(r"(aotc\.[a-z-]+/|urn:aotc:[a-z-]+:v)([0-9]{1,9})(?:\.[0-9]{1,9})?")

# A release of an artifact: a version such as 1.4.0.
RELEASE = r"[0-9]{1,9}(\.[0-9]{1,9}){0,3}"

ID_PREFIX: Final = "sha256-"
_NAME: Final = re.compile(rf"{ID_PREFIX}([0-9a-f]{{64}})")
_REFERENCE: Final = re.compile(r"oci:/{1,2}([^/].*)")


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


# How an artifact is named: by a path, by `sha256-<id>`, which names an entry of a store, or by
# `oci://…`, which names what a registry holds.
#
# `sha256-` and 64 hexadecimal digits are always an id, even if the working directory has a folder
# of that name; such a folder is named `./sha256-…`, and one whose name is `oci:` is named `./oci:`.
# Everything else is a path.


def stated_id(name: str | Path) -> str | None:
    """The id (64 hexadecimal digits) if `name` is `sha256-<id>`, or None if it is a path."""
    match = _NAME.fullmatch(str(name))
    return match[1] if match else None


def stated_reference(name: str | Path) -> str | None:
    """`oci://…` if `name` is a reference to a registry, also as a path; None if it is a path.

    `Path` makes `oci:/…` of `oci://…`.
    """
    match = _REFERENCE.fullmatch(str(name).replace("\\", "/"))
    return f"oci://{match[1]}" if match else None


def artifact_name(name: str | Path) -> str:
    """An id, a reference or a path as users write it, also where it is a path already."""
    return stated_reference(name) or str(name)


def artifact_path(name: str | Path) -> Path:
    """`name` as a path that still is an id, a reference or a path, whichever `name` was.

    `Path` would turn the paths `./sha256-…` and `sha256-…/` into an id, and `./oci:/…` into a
    reference, so they become absolute.
    """
    from pathlib import Path

    path = Path(name)
    for stated in (stated_id, stated_reference):
        if stated(path) is not None and stated(name) is None:
            return path.absolute()
    return path
