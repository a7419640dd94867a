"""This machine as less than it is: what another one would show, where only this one is at hand.

Two variables of the environment, for tests.  They take away and never add: what a CPU lacks cannot
be run by naming it, and no variable may make a gate pass that this machine does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from aotc.contract.target import ISA_FEATURES
from aotc.errors import AotcError

# Names of CPU features; the others are not reported.
ISA_VARIABLE: Final = "AOTC_HOST_ISA"
# Execution providers, as ORT names them, that offer no device.
WITHOUT_VARIABLE: Final = "AOTC_HOST_WITHOUT"
# Stands among the features where some are hidden.  What is compiled for this CPU may use those all
# the same, as providers look at the CPU themselves: so it requires this one too, which no CPU has,
# and runs nowhere but under the same variable.
LESSER: Final = "lesser"


def stated_isa() -> frozenset[str] | None:
    """The features that are not hidden; None where all may be seen.

    Raises AOTC-I027 where a name is of no feature.
    """
    text = os.environ.get(ISA_VARIABLE)
    if text is None:
        return None
    names = frozenset(text.replace(",", " ").split())
    known = {name for features in ISA_FEATURES.values() for name in features}
    if names - known:
        raise AotcError(
            "AOTC-I027",
            "these are no CPU features that ONNX Runtime chooses by",
            where=f"${ISA_VARIABLE}",
            expected=", ".join(sorted(known)),
            found=", ".join(sorted(names - known)),
        )
    return names


def lesser_isa(features: Iterable[str]) -> tuple[str, ...]:
    """`features` without what is hidden; raises AOTC-I027."""
    have, seen = tuple(features), stated_isa()
    if seen is None or seen.issuperset(have):
        return have
    return (*(name for name in have if name in seen), LESSER)


def hidden_providers() -> frozenset[str]:
    """Execution providers that offer no device here, by ORT's names."""
    return frozenset(os.environ.get(WITHOUT_VARIABLE, "").replace(",", " ").split())
