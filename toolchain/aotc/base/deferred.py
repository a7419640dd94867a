"""Modules that are imported when something in them is first used.

A start imports only what it runs.  Annotations are not evaluated then, but `typing.get_type_hints`
evaluates them, and finds such a module among the globals:

    if TYPE_CHECKING:
        from aotc.runtime import binding
    else:
        binding = Deferred("aotc.runtime.binding")
"""

from __future__ import annotations

from typing import Any


class Deferred:
    """A module that is imported with its first attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        """The module's own; Any if its package is not installed: nobody has such values then."""
        from importlib import import_module

        try:
            return getattr(import_module(self._name), attribute)
        except ModuleNotFoundError:
            return Any
