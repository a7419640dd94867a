"""The nodes to blame where a variant in a lower precision is too inexact."""

from __future__ import annotations

from aotc.contract.results.blamed import Blamed
from aotc.errors import AotcError
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import LoweredModel


def blame(lowered: LoweredModel, error: AotcError, options: BuildOptions) -> Blamed | None:
    """Which nodes make a variant breach its gates with `error`, within the profile's trials.

    None where the variant computes in the model's own precision, where `error` is of something
    else, and where the profile wants no trials.  What was found of the same form is not searched
    again.
    """
    raise NotImplementedError


def smallest_kept(
    lowered: LoweredModel, error: AotcError, options: BuildOptions
) -> tuple[str, ...] | None:
    """The nodes to keep in float32 besides `plan.keep_float32`, so that the variant passes.

    None where `blame` finds none, or none but all of them.
    """
    blamed = blame(lowered, error, options)
    if blamed is None or not blamed.kept or len(blamed.kept) == blamed.candidates:
        return None
    return blamed.kept
