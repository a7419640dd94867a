"""What a build request changes in its profile: ranges of dims, the target and the precision."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from aotc.contract.builtin import load_profile_file, load_target
from aotc.contract.codec.parsing import ParseError
from aotc.contract.document_places import NO_PLACES, DocumentPlaces
from aotc.contract.profile import Profile
from aotc.contract.profile_paths import with_absolute_paths
from aotc.contract.profile_terms import WantedPrecision
from aotc.contract.shapes.dim_range import DimRange
from aotc.contract.target import Target
from aotc.errors import AotcError
from aotc.records import replace
from aotc.stages.planning.request import BuildRequest


def requested_profile(request: BuildRequest) -> tuple[Profile, DocumentPlaces]:
    """The requested profile, with the dims, the target and the precision of the request.

    Variants that state a precision of their own keep it.  The second result tells where the
    profile's file states its settings.  Raises AOTC-I021, I022, S003 and I027.
    """
    profile = request.profile
    found, places = (
        (with_absolute_paths(profile, Path()), NO_PLACES)
        if isinstance(profile, Profile)
        else load_profile_file(profile)
    )
    found = with_dims(found, request.dims or {})
    if request.precision is not None:
        found = replace(found, precision=_precision(request.precision))
    if request.target is not None:
        found = replace(found, target=str(request.target))
        # A target of the request is not one that the profile names.
        places = replace(places, overridden=frozenset({"target"}))
    return found, places


def with_dims(profile: Profile, dims: Mapping[str, str | int]) -> Profile:
    """`profile` with ranges from the command line; raises AOTC-S003 and I027."""
    ranges = dict(profile.dims)
    for name, text in dims.items():
        if name in ranges and ranges[name].buckets:
            raise AotcError(
                "AOTC-I027",
                "the profile has buckets for this dim, which --dim would replace",
                where=f"--dim {name}={text}",
                fix="Change the dim in the profile.",
            )
        try:
            ranges[name] = DimRange.from_json(text)
        except ParseError as error:
            problem = error.problems[0]
            raise AotcError(
                problem.code or "AOTC-I027",
                problem.what,
                where=f"--dim {name}={text}",
                expected="NAME=SIZE, NAME=MIN..MAX or NAME=MIN..MAX:STEP",
            ) from None
    return replace(profile, dims=ranges)


def _precision(word: str) -> WantedPrecision:
    for known in get_args(WantedPrecision):
        if word == known:
            return known  # type: ignore[no-any-return]
    raise AotcError(
        "AOTC-I027",
        "this is not a precision",
        where=f"--precision {word}",
        expected=", ".join(get_args(WantedPrecision)),
    )


def target_of(profile: Profile, host: Target, places: DocumentPlaces = NO_PLACES) -> Target:
    """The target that the profile names, with the profile's GPUs; `host` is this machine.

    Raises AOTC-I049 for a target that the profile's own file names, at its line there, with what
    is wrong with it in `also`; and as `load_target` does for one of the request.
    """
    try:
        found = host if profile.target == "host" else load_target(profile.target)
    except AotcError as error:
        place = places.of("target")
        if place is None:
            raise
        raise AotcError(
            "AOTC-I049",
            "the profile names a target that cannot be used",
            where=f"{place.file}: target",
            found=profile.target,
            fix=error.fix,
            place=place,
            also=(error,),
        ) from None
    if profile.compute_capabilities:
        found = replace(found, compute_capabilities=profile.compute_capabilities)
    return found


def refuse_artifact(model: str | Path | bytes) -> None:
    """Raise AOTC-I002 if `model` is the folder of an artifact."""
    # Unlike Path.is_file, this treats a name that is too long as missing.
    manifest = "" if isinstance(model, bytes) else os.path.join(model, "payload", "aotc.json")  # noqa: PTH118
    if os.path.isfile(manifest):  # noqa: PTH113
        raise AotcError(
            "AOTC-I002",
            "this is an artifact already, not a model",
            where=str(model),
            fix="Build from the .onnx file; 'aotc inspect' tells which one it was.",
        )
