"""The dataclass that a class of records stands for, made where Python's functions ask for it."""

from __future__ import annotations

from typing import Any

from aotc.records.fields import MISSING, fields


def as_dataclass(cls: type[Any], *, frozen: bool) -> Any:
    """A dataclass of the standard library with the fields of `cls`, and nothing else of it."""
    import dataclasses

    rows = []
    for item in fields(cls):
        stated: dict[str, Any] = {
            "init": item.init,
            "repr": item.repr,
            "compare": item.compare,
            "kw_only": item.kw_only,
        }
        if item.default is not MISSING:
            stated["default"] = item.default
        if item.default_factory is not MISSING:
            stated["default_factory"] = item.default_factory
        rows.append((item.name, item.type, dataclasses.field(**stated)))
    return dataclasses.make_dataclass(cls.__name__, rows, frozen=frozen)
