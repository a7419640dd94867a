"""What a form is given: a fleet in shards, by what they ask of a machine; and how files are filled.

A form is a function from a `ShardedFleet` to the texts of its files, by their names in the folder
that they are written into.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import repository_of
from aotc.base.records import record
from aotc.fleet.cells import FleetFile
from aotc.fleet.shards import cells_by_needs, shards
from aotc.spec.codec import Json
from aotc.spec.fleet import Cell, Needs
from aotc.spec.profile_files import data_folder

# How a file begins that was emitted, and that --force replaces.
MARK: Final = b"# Written by 'aotc fleet emit'"
# What neither a shell, nor YAML, nor the expressions of a CI system read as anything else.
_PATH: Final = re.compile(r"(?!-)[\w./+@=,-]+( +[\w./+@=,-]+)*")
# A label of a runner or of a node, and a value of one.
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@record
class Machines:
    """Shards that ask for the same machine: `count` of them, from number `first` on."""

    needs: Needs
    first: int
    count: int

    @property
    def labels(self) -> tuple[str, ...]:
        """Words for what such a machine has beside cores and memory, such as `gpu` and `H100`."""
        gpu = ("gpu",) if self.needs.num_gpus else ()
        kind = (self.needs.accelerator_type,) if self.needs.accelerator_type else ()
        return (*gpu, *kind, *sorted(name for name, n in self.needs.resources.items() if n))


@record
class ShardedFleet:
    """A fleet as CI systems see it: paths are from the root of the repository, with slashes."""

    name: str
    file: str
    count: Annotated[int, "shards in all"]
    machines: tuple[Machines, ...]
    outputs: Annotated[tuple[str, ...], "folders that hold all artifacts"]
    folder: Annotated[str, "where the emitted files go; empty: outside of the repository"]


def sharded(fleet: FleetFile, count: int, folder: Path) -> ShardedFleet:
    """A fleet in `count` shards, whose emitted files go into `folder`.

    Raises AOTC-I189 where there are fewer shards than kinds of machines, or where a name or a path
    would be read as something else.
    """
    cells = [task.cell for task in fleet.tasks]
    kinds = cells_by_needs(cells)
    if len(kinds) > count:
        raise AotcError(
            "AOTC-I189",
            "there are fewer shards than kinds of machines that cells ask for",
            where=f"--shards {count}",
            expected=f"at least {len(kinds)}",
            found=str(count),
        )
    # A shard without a cell would be a machine for nothing.
    parts = shards(cells, min(count, len(cells)))
    machines, first = [], 1
    for needs, _ in kinds:
        number = sum(part[0].needs == needs for part in parts)
        machines.append(Machines(needs=needs, first=first, count=number))
        first += number
    for kind in machines:
        for label in kind.labels:
            _require(label, _LABEL, "the name of a resource", "letters, digits and ._-")
    root = repository_of(fleet.path.parent) or fleet.path.parent
    inside = _within(root, folder)
    return ShardedFleet(
        name=fleet.fleet.name,
        file=_path(root, fleet.path, "the fleet"),
        count=len(parts),
        machines=tuple(machines),
        outputs=_outputs(root, cells),
        folder=inside if _PATH.fullmatch(inside) else "",
    )


def _outputs(root: Path, cells: Sequence[Cell]) -> tuple[str, ...]:
    """The folders that hold the artifacts: the common one, or those at the top."""
    found = [PurePosixPath(_path(root, Path(cell.output), "an output")) for cell in cells]
    common = os.path.commonpath([path.parent for path in found])
    if common:
        return (common,)
    return tuple(dict.fromkeys(path.parts[0] for path in found))


def _path(root: Path, path: Path, what: str) -> str:
    """A path from the root, with slashes; raises AOTC-I189 if a CI job could not use it."""
    found = _within(root, path)
    if not found:
        raise AotcError(
            "AOTC-I189",
            f"{what} is not in the repository of the fleet",
            where=str(path),
            expected=f"a path in {root}",
        )
    _require(found, _PATH, f"the path of {what}", "letters, digits, spaces and ./_+@=,-")
    return found


def _within(root: Path, path: Path) -> str:
    """The path from the root, or nothing if it is outside."""
    found = Path(os.path.relpath(path.absolute(), root.absolute()))
    return "" if ".." in found.parts else found.as_posix()


def _require(text: str, allowed: re.Pattern[str], what: str, expected: str) -> None:
    if not allowed.fullmatch(text):
        raise AotcError(
            "AOTC-I189",
            f"{what} has characters with a special meaning in a CI system",
            where=text,
            expected=expected,
        )


def filled(template: str, **marks: Json) -> str:
    """A template of `ci/templates/fleet` with `@NAME@` replaced: a text as it is, else as JSON."""
    text = (data_folder("ci/templates") / "fleet" / template).read_text("utf-8")
    for mark, value in marks.items():
        said = value if isinstance(value, str) else json.dumps(value)
        text = text.replace(f"@{mark}@", said)
    return text


def extra_of(needs: Needs) -> str:
    """The extra of aotc that a machine for such cells installs."""
    return "gpu" if needs.num_gpus else "cpu"


Files = Mapping[str, str]
