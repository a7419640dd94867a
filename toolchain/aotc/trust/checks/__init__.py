"""Compatibility checks, one per file; every check in a file of this package is used.

To add a check, add its file, the field of the requirement, and the reason of its code.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from aotc.base.codes import REASONS
from aotc.base.codes.reason import NO
from aotc.trust.checks.base import Check

# Compatibility codes without a check here: no variant runs, or the provider itself refuses.
_WITHOUT_CHECK: Final = frozenset({"AOTC-C009", "AOTC-C013"})


@cache
def checks() -> Mapping[str, type[Check]]:
    """All checks by code, in the order of the codes; imports them.

    Raises ValueError if two checks have the same code, and ImportError if the catalogue has a code
    without a check, so that a missing file never makes a host pass.
    """
    found: dict[str, type[Check]] = {}
    for name in _modules():
        for value in vars(import_module(name)).values():
            if not isinstance(value, type) or value.__module__ != name:
                continue
            if issubclass(value, Check) and value is not Check:
                if value.code in found:
                    raise ValueError(f"two checks have the code {value.code!r}")
                found[value.code] = value
    if missing := _required_codes() - found.keys():
        raise ImportError(f"the installation does not have the checks {', '.join(sorted(missing))}")
    return dict(sorted(found.items()))


def _modules() -> list[str]:
    """The names of the modules of this package, without `pkgutil`, which would import `inspect`."""
    files = (file for folder in __path__ for file in Path(folder).glob("*.py*"))
    return [f"{__name__}.{stem}" for stem in sorted({file.stem for file in files} - {"__init__"})]


def _required_codes() -> set[str]:
    """The codes of the catalogue for which there must be a check."""
    refusals = {
        code for code, row in REASONS.items() if code[:6] == "AOTC-C" and row.exit_status == NO
    }
    return refusals - _WITHOUT_CHECK
