"""Open sets by name: each row is `name -> "module:attribute"`, imported when first asked for."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any


class Registry:
    """A lazy table of one kind of open thing (backends, passes, checks, commands)."""

    def __init__(self, kind: str, rows: tuple[tuple[str, str], ...]) -> None:
        self.kind = kind
        self._rows: dict[str, str] = {}
        for name, target in rows:
            self.add(name, target)

    def add(self, name: str, target: str) -> None:
        """Add a row; `ValueError` where the name is taken, as a silent override hides a plugin."""
        if name in self._rows:
            raise ValueError(f"{self.kind} {name!r} is registered twice")
        self._rows[name] = target

    def names(self) -> tuple[str, ...]:
        """Registered names, in the order they were added."""
        return tuple(self._rows)

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def load(self, name: str) -> Any:
        """Import and return the named attribute; `KeyError` where the name is unknown."""
        module, _, attribute = self._rows[name].partition(":")
        return getattr(import_module(module), attribute)
