"""Built-in profiles with some fields of a test's own."""

from __future__ import annotations

from typing import Any

from aotc.spec.codec import decode, encode
from aotc.spec.profile import Profile
from aotc.spec.profile_files import load_profile


def profile_with(base: str, **fields: Any) -> Profile:
    """A built-in profile with other fields."""
    made: Profile = decode(Profile, {**encode(load_profile(base)), **fields})
    return made


def small_profile(base: str, **fields: Any) -> Profile:
    """The same for one size, quick to prove and to tune, its partitions kept however small."""
    small = {
        "dims": {"batch": 2},
        "partitioning": {"weigh_boundaries": False},
        "parity": {"random_shapes": 0},
        "tune": {"rounds": 3},
    }
    return profile_with(base, **{**small, **fields})
