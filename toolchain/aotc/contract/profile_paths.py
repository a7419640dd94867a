"""Paths that a profile states, relative to its file: of plugin libraries, and of data."""

from __future__ import annotations

from pathlib import Path

from aotc.contract.profile import Profile
from aotc.errors import AotcError
from aotc.records import replace


def with_absolute_paths(profile: Profile, folder: Path) -> Profile:
    """`profile` with absolute paths of plugin libraries and data; relative ones start at `folder`.

    Raises AOTC-I022 if a path starts with `~` and there is no such home folder.
    """
    base = folder.resolve()
    plugins = {
        name: replace(spec, library=_absolute(spec.library, base, f"plugins.{name}.library"))
        for name, spec in profile.plugins.items()
    }
    calibration, gates = profile.calibration, profile.gates
    if calibration.data:
        data = _absolute(calibration.data, base, "calibration.data")
        calibration = replace(calibration, data=data)
    if gates.task is not None:
        data = _absolute(gates.task.data, base, "gates.task.data")
        gates = replace(gates, task=replace(gates.task, data=data))
    return replace(profile, plugins=plugins, calibration=calibration, gates=gates)


def without_folders(profile: Profile) -> Profile:
    """`profile` with names of its libraries and data alone: builds in two folders are equal."""
    plugins = {
        name: replace(spec, library=Path(spec.library).name)
        for name, spec in profile.plugins.items()
    }
    calibration, gates = profile.calibration, profile.gates
    if calibration.data:
        calibration = replace(calibration, data=Path(calibration.data).name)
    if gates.task is not None:
        gates = replace(gates, task=replace(gates.task, data=Path(gates.task.data).name))
    return replace(profile, plugins=plugins, calibration=calibration, gates=gates)


def _absolute(path: str, base: Path, field: str) -> str:
    try:
        return str(base / Path(path).expanduser())
    except RuntimeError:
        kind = "library" if field.startswith("plugins") else "data"
        raise AotcError(
            "AOTC-I022",
            f"the path of the {kind} starts with a home folder that does not exist",
            where=field,
            found=path,
        ) from None
