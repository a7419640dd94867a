"""Files with which another system builds a fleet in shards, written all or none."""

from __future__ import annotations

import os
from pathlib import Path

from aotc.base.errors import AotcError, with_others
from aotc.base.files.failures import cannot_write
from aotc.base.files.reading import read_at_most
from aotc.base.files.replacing import check_output
from aotc.base.files.writing import write_atomically
from aotc.fleet.cells import read_fleet
from aotc.fleet.emitted import FORMS
from aotc.fleet.emitted.base import MARK, Files, ShardedFleet, sharded
from aotc.spec.matrix_report import EmitReport


def emitted_files(
    fleet: Path, *, form: str, shards: int, folder: Path, force: bool = False
) -> EmitReport:
    """Write the files of a form for a fleet in so many shards into `folder`.

    Raises what `read_fleet` raises, AOTC-I166 (all cells are excluded), I189 (it cannot be divided
    so), I017 (a file exists that was not emitted, or without `force` any) and I018 and I026 (a file
    cannot be written); all but the last two before anything is written.
    """
    found = sharded(read_fleet(fleet).only(()), shards, folder)
    files: Files = FORMS.load(form)(found)
    _refuse_replacing(folder, files, force)
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text.encode("utf-8"))
        except OSError as error:
            raise cannot_write(error, "cannot write the file", str(path)) from None
    return EmitReport(
        fleet=found.name,
        form=form,
        shards=found.count,
        machines={_said(found, n): kind.count for n, kind in enumerate(found.machines)},
        files=tuple(str(folder / name) for name in files),
    )


def _said(fleet: ShardedFleet, number: int) -> str:
    """What the shards of a kind of machine ask for, in words that differ."""
    kind = fleet.machines[number]
    words = [f"{kind.needs.cpus:g} core{'s' if kind.needs.cpus != 1 else ''}"]
    if kind.needs.memory_bytes:
        words.append(f"{kind.needs.memory_bytes >> 20} MiB")
    return ", ".join((*words, *kind.labels))


def _was_emitted(path: Path) -> bool:
    try:
        return read_at_most(path, len(MARK)).startswith(MARK)
    except OSError:
        return False


def _refuse_replacing(folder: Path, files: Files, force: bool) -> None:
    """Raise AOTC-I017 with every file that would be replaced and may not be."""
    refused = []
    for path in (folder / name for name in files):
        try:
            if os.path.lexists(path):
                check_output(path, force=force and _was_emitted(path))
        except AotcError as error:
            refused.append(error)
    if refused:
        raise with_others(refused)
