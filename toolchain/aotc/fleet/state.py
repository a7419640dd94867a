"""What became of each cell of a fleet, kept from one run to the next: one file a cell.

A file is written as its cell ends, at once and as a whole, so that a run that was killed goes on
where it was.  What cannot be read is as if it were not there: the cell is built again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, TypeVar

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_write
from aotc.base.files.folders import PRIVATE, belongs_to_others, make_folder, state_folder
from aotc.base.files.reading import read_at_most
from aotc.base.files.writing import write_atomically
from aotc.spec.codec import ParseError, decode, encode
from aotc.spec.fleet import CellResult, MergedArtifact
from aotc.spec.json import MAX_JSON_BYTES, document, strict_json
from aotc.spec.payload import Finding

_FOLDER: Final = "fleets"
Kept = TypeVar("Kept", CellResult, MergedArtifact)


class FleetState:
    """The folder that results are kept in; `problem` is why one could not be, the first time."""

    def __init__(self, folder: Path | None) -> None:
        """None: nothing is kept."""
        self.folder = folder
        self.problem: AotcError | None = None

    def result(self, name: str) -> CellResult | None:
        """What became of the cell `name` when it was built last."""
        found = self._read(name, CellResult)
        return found if found is not None and found.cell.name == name else None

    def merged(self, name: str) -> MergedArtifact | None:
        """The artifact that was made last of the cells of `name`, model and profile."""
        return self._read(f"merged {name}", MergedArtifact)

    def keep(self, result: CellResult) -> None:
        """Keep what became of a cell, in place of what became of it before."""
        self._write(result.cell.name, result)

    def keep_merged(self, name: str, merged: MergedArtifact) -> None:
        """Keep what was made of the cells of `name`."""
        self._write(f"merged {name}", merged)

    def findings(self) -> tuple[Finding, ...]:
        """AOTC-I168 where something could not be kept."""
        if self.problem is None:
            return ()
        what = f"{self.problem.what}: {self.problem.found}".removesuffix(": ")
        return (Finding(code="AOTC-I168", what=what, where=self.problem.where),)

    def _path(self, name: str) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"

    def _read(self, name: str, kind: type[Kept]) -> Kept | None:
        path = self._path(name)
        if path is None:
            return None
        try:
            if belongs_to_others(path.parent):
                return None
            return decode(kind, strict_json(read_at_most(path, MAX_JSON_BYTES)))
        except (OSError, ParseError):
            return None

    def _write(self, name: str, result: CellResult | MergedArtifact) -> None:
        path = self._path(name)
        if path is None:
            return
        try:
            make_folder(path.parent, PRIVATE)
            write_atomically(path, document(encode(result)).encode())
        except OSError as error:
            what = "what became of a cell could not be kept"
            self.problem = self.problem or cannot_write(error, what, str(path))


def default_state(fleet: Path, name: str) -> Path | None:
    """Where the state of a fleet's file is kept for this user; None without a home folder."""
    state = state_folder()
    if state is None:
        return None
    digest = hashlib.sha256(str(fleet.resolve()).encode()).hexdigest()[:16]
    return state / "aotc" / _FOLDER / f"{name}-{digest}"
