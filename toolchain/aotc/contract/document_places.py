"""Where a document of the user states a setting, so that a gate is told with its line."""

from __future__ import annotations

from functools import cache
from typing import Final

from aotc.contract.codec.yaml_positions import Positions, nearest_position, positions
from aotc.errors import Place
from aotc.records import record


@record
class DocumentPlaces:
    """A YAML file as it was read; without a file, as for a profile made in Python, no places.

    `overridden` are settings of the file that the command line replaces, which have no place.
    """

    file: str = ""
    data: bytes = b""
    overridden: frozenset[str] = frozenset()

    def of(self, setting: str) -> Place | None:
        """Where `setting`, such as `budgets.cpu_share`, stands, or else what is around it."""
        if not self.file or setting in self.overridden:
            return None
        line, column = nearest_position(_positions(self.data), setting)
        return Place(file=self.file, line=line, column=column)


@cache
def _positions(data: bytes) -> Positions:
    return positions(data)


NO_PLACES: Final = DocumentPlaces()
