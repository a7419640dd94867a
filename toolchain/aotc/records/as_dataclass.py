"""The dataclass that a class of records stands for, made where Python's functions ask for it."""

from __future__ import annotations

import dataclasses
from typing import Any

from aotc.records.fields import MISSING, fields


def as_dataclass(cls: type[Any], *, frozen: bool) -> Any:
    """A dataclass of the standard library with the fields of `cls`, and nothing else of it."""
    rows = []
    for each in fields(cls):
        stated: dict[str, Any] = {
            "init": each.init,
            "repr": each.repr,
            "compare": each.compare,
            "kw_only": each.kw_only,
        }
        if each.default is not MISSING:
            stated["default"] = each.default
        if each.default_factory is not MISSING:
            stated["default_factory"] = each.default_factory
        rows.append((each.name, each.type, dataclasses.field(**stated)))
    return dataclasses.make_dataclass(cls.__name__, rows, frozen=frozen)
