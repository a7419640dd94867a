"""What `aotc pack` and `aotc unpack` print with `--json`."""

from __future__ import annotations

from typing import Annotated, Literal

from aotc.records import record


@record
class PackReport:
    """`aotc pack --json`."""

    schema: Literal["aotc.pack/1"] = "aotc.pack/1"
    artifact: Annotated[str, "path of the folder"]
    archive: Annotated[str, "path of the packed artifact"]
    artifact_id: Annotated[str, "sha256 of payload/aotc.json; nothing was verified"]
    files: int
    bytes: Annotated[int, "of the packed artifact"]


@record
class UnpackReport:
    """`aotc unpack --json`."""

    schema: Literal["aotc.unpack/1"] = "aotc.unpack/1"
    archive: Annotated[str, "path of the packed artifact"]
    artifact: Annotated[str, "path of the folder"]
    artifact_id: Annotated[str, "sha256 of payload/aotc.json; nothing was verified"]
    files: int
    bytes: Annotated[int, "of all files"]
