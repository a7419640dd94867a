"""Loggers of the library: `aotc.load`, `aotc.run`, `aotc.verify` and `aotc.build`.

Who reads logs has imported `logging`.  Where nobody has, nothing can be heard, and it is not
imported: that would take as long as a verification.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from aotc.base.text import printable

if TYPE_CHECKING:
    import logging

Name = Literal["load", "run", "verify", "build"]
# Levels of `logging`.
DEBUG: Final = 10
INFO: Final = 20
WARNING: Final = 30

_loggers: dict[Name, logging.Logger] = {}


def heard(name: Name, level: int) -> logging.Logger | None:
    """The logger `aotc.NAME`, if somebody listens to this level of it."""
    found = _loggers.get(name) or _logger(name)
    return found if found is not None and found.isEnabledFor(level) else None


def log(name: Name, level: int, text: str, /, **fields: object) -> None:
    """Log a text, and each of `fields` as an attribute `aotc_FIELD` of its record."""
    logger = heard(name, level)
    if logger is not None:
        logger.log(level, "%s", printable(text), extra=_named(fields))


def _named(fields: Mapping[str, object]) -> dict[str, object]:
    return {
        f"aotc_{name}": printable(value) if isinstance(value, str) else value
        for name, value in fields.items()
    }


def _logger(name: Name) -> logging.Logger | None:
    # Defined last but one: another thread may be in the midst of the import.
    handler = getattr(sys.modules.get("logging"), "NullHandler", None)
    if handler is None:
        return None
    import logging

    whole = logging.getLogger("aotc")
    if not whole.handlers:
        # As libraries should: what no application configured is not written to standard error.
        whole.addHandler(handler())
    return _loggers.setdefault(name, logging.getLogger(f"aotc.{name}"))
