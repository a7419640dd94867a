"""The profile with which an artifact was built, from its manifest."""

from __future__ import annotations

from functools import lru_cache

from aotc.contract.codec.parsing import ParseError, decode
from aotc.contract.manifest.document import Manifest
from aotc.contract.profile import Profile
from aotc.errors import AotcError
from aotc.files.artifact_layout import MANIFEST


class _ByIdentity:
    """A manifest that is only equal to itself, as the key of a cache."""

    __slots__ = ("manifest",)

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    def __hash__(self) -> int:
        return id(self.manifest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.manifest is self.manifest


def profile_of(manifest: Manifest) -> Profile:
    """The profile with which an artifact was built; raises AOTC-G009 and I046."""
    return _decode_profile(_ByIdentity(manifest))


# A load needs it several times, for one manifest.
@lru_cache(maxsize=1)
def _decode_profile(wrapped: _ByIdentity) -> Profile:
    try:
        return decode(Profile, wrapped.manifest.profile, allow_unknown=True)
    except ParseError as error:
        first = error.problems[0]
        raise AotcError(
            first.code or "AOTC-G009",
            "the profile in the manifest is malformed",
            where=f"{MANIFEST}: profile.{first.path}",
            found=first.what,
        ) from None
