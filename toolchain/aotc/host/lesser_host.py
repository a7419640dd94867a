"""This machine with less than it has, to show what another machine would do.

Two environment variables, for tests.  They only take away: naming a CPU feature cannot make it run,
and no variable may let a gate pass that this machine fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from aotc.contract.target import ISA_FEATURES
from aotc.errors import AotcError

# Names of CPU features; all others are hidden.
ISA_VARIABLE: Final = "AOTC_HOST_ISA"
# Execution providers, by their ORT names, that offer no device.
WITHOUT_VARIABLE: Final = "AOTC_HOST_WITHOUT"
# Added to the features if some are hidden.  Providers look at the CPU themselves, so what is
# compiled for this CPU may use the hidden features all the same.  It therefore requires this name
# too, which no CPU has, and runs only under the same variable.
LESSER: Final = "lesser"


def unhidden_isa() -> frozenset[str] | None:
    """The features that are not hidden; None if none is hidden.

    Raises AOTC-I027 if a name is not a known feature.
    """
    text = os.environ.get(ISA_VARIABLE)
    if text is None:
        return None
    names = frozenset(text.replace(",", " ").split())
    known = {name for features in ISA_FEATURES.values() for name in features}
    if names - known:
        raise AotcError(
            "AOTC-I027",
            "these are not CPU features that ONNX Runtime selects by",
            where=f"${ISA_VARIABLE}",
            expected=", ".join(sorted(known)),
            found=", ".join(sorted(names - known)),
        )
    return names


def visible_isa(features: Iterable[str]) -> tuple[str, ...]:
    """`features` without the hidden ones; raises AOTC-I027."""
    present, allowed = tuple(features), unhidden_isa()
    if allowed is None or allowed.issuperset(present):
        return present
    return (*(name for name in present if name in allowed), LESSER)


def hidden_providers() -> frozenset[str]:
    """Execution providers that offer no device here, by their ORT names."""
    return frozenset(os.environ.get(WITHOUT_VARIABLE, "").replace(",", " ").split())
