"""The profile that an artifact was built with, as its manifest keeps it."""

from __future__ import annotations

from functools import lru_cache

from aotc.contract.codec.parsing import ParseError, decode
from aotc.contract.manifest.document import Manifest
from aotc.contract.profile import Profile
from aotc.errors import AotcError
from aotc.files.artifact_layout import MANIFEST


class _Same:
    """A manifest, equal to itself alone, so that what was made of it can be kept."""

    __slots__ = ("manifest",)

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    def __hash__(self) -> int:
        return id(self.manifest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.manifest is self.manifest


def profile_of(manifest: Manifest) -> Profile:
    """The profile that an artifact was built with; raises AOTC-G009, I046."""
    return _decoded(_Same(manifest))


# A load asks several times, for one manifest.
@lru_cache(maxsize=1)
def _decoded(same: _Same) -> Profile:
    try:
        return decode(Profile, same.manifest.profile, allow_unknown=True)
    except ParseError as error:
        first = error.problems[0]
        raise AotcError(
            first.code or "AOTC-G009",
            "the profile in the manifest is malformed",
            where=f"{MANIFEST}: profile.{first.path}",
            found=first.what,
        ) from None
