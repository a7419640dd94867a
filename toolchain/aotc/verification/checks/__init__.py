"""Compatibility checks, one a file; a file's check is in use by being here.

A check of a new requirement is its file, the requirement's field, and the reason of its code.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from aotc.reasons import REASONS
from aotc.reasons.reason import NO
from aotc.verification.checks.base import Check

# Why a host is refused beside its requirements: none of the variants fits, or the provider says no.
_BESIDE: Final = frozenset({"AOTC-C009", "AOTC-C013"})


@cache
def checks() -> Mapping[str, type[Check]]:
    """Every check by its code, in the order of codes; imports them all.

    Raises ValueError where two have one code: one of the two would be hidden.  Raises ImportError
    where the catalogue has a code whose check is not found, as nothing may pass for want of a file.
    """
    found: dict[str, type[Check]] = {}
    for name in _modules():
        for each in vars(import_module(name)).values():
            if not isinstance(each, type) or each.__module__ != name:
                continue
            if issubclass(each, Check) and each is not Check:
                if each.code in found:
                    raise ValueError(f"check {each.code!r} is there twice")
                found[each.code] = each
    if missing := _demanded() - found.keys():
        raise ImportError(f"the installation lacks the checks {', '.join(sorted(missing))}")
    return dict(sorted(found.items()))


def _modules() -> list[str]:
    """The modules of this room; `pkgutil` would find them too, and import `inspect` for it."""
    files = (file for folder in __path__ for file in Path(folder).glob("*.py*"))
    return [f"{__name__}.{stem}" for stem in sorted({file.stem for file in files} - {"__init__"})]


def _demanded() -> set[str]:
    """Codes of the catalogue that a check refuses with."""
    refusals = {
        code for code, row in REASONS.items() if code[:6] == "AOTC-C" and row.exit_status == NO
    }
    return refusals - _BESIDE
