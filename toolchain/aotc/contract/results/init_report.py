"""What `aotc init` answers: the files of a project that it wrote, and those that it left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.records import field, record

FileAction = Literal["written", "replaced", "extended", "kept"]


@record
class InitFile:
    """One file, and what happened to it."""

    path: str
    action: Annotated[
        FileAction,
        "kept: it was there; replaced: a file of aotc's own, with --force; extended: at its end",
    ]


@record
class InitReport:
    """`aotc init --json`: the profile and the CI job that were written for a model."""

    schema: Literal["aotc.init/1"] = "aotc.init/1"
    model: Annotated[str, "path of the model, in the folder of the project"]
    profile: Annotated[str, "path of the profile"]
    ci: Annotated[str, "system whose job was written; none: no job"]
    dims: Annotated[Mapping[str, tuple[str, ...]], "positions of the free dims, by their names"]
    files: tuple[InitFile, ...]
    to_add: Annotated[
        Mapping[str, str], "what a file of the user's, which was kept, needs for the job, by path"
    ] = field(default_factory=dict)
