"""Where the labelled set of a task is, and where the function that judges by it is looked for."""

from __future__ import annotations

from pathlib import Path

from aotc.contract.precision.quality_gates import TaskGate
from aotc.stages.build_options import BuildOptions


def labelled_set(task: TaskGate, options: BuildOptions) -> Path:
    """The path of the set: a relative one starts beside the profile."""
    return profile_folder(options) / Path(task.data).expanduser()


def profile_folder(options: BuildOptions) -> Path:
    """The folder of the profile's file; the working directory for a profile made in Python."""
    file = options.places.file
    return (Path(file).parent if file else Path()).resolve()
