"""What is imported when it is first asked for: rows of tables by name, and modules.

A row of a table is `name -> "module:attribute"`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any


class Registry:
    """A lazy table of one kind of thing, such as backends or commands."""

    def __init__(self, kind: str, rows: tuple[tuple[str, str], ...]) -> None:
        """Raises `ValueError` where a name is there twice: one of the two would be hidden."""
        self._rows: dict[str, str] = {}
        for name, target in rows:
            if name in self._rows:
                raise ValueError(f"{kind} {name!r} is registered twice")
            self._rows[name] = target

    def names(self) -> tuple[str, ...]:
        """The names, in the order of the rows."""
        return tuple(self._rows)

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def load(self, name: str) -> Any:
        """Import and return the named attribute; `KeyError` where the name is unknown."""
        return load(self._rows[name])


def load(target: str) -> Any:
    """Import and return what `module:attribute` names."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


class Deferred:
    """A module that is imported with its first attribute.

    A start imports only what it runs.  Annotations are not evaluated then, but
    `typing.get_type_hints` evaluates them, and finds such a module among the globals:

        if TYPE_CHECKING:
            from aotc.runtime import binding
        else:
            binding = Deferred("aotc.runtime.binding")
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        """The module's own; Any if its package is not installed: nobody has such values then."""
        try:
            return getattr(import_module(self._name), attribute)
        except ModuleNotFoundError:
            return Any
