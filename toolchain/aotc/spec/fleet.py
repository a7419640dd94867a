"""The file of a fleet, its plan and its report: models by profiles by targets.

A *cell* is one model with one profile for one target.  A file that states nothing but models is
complete: each is built with the profile `edge` for the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.base.records import field, record
from aotc.spec.codec import Json
from aotc.spec.precision import Name
from aotc.spec.reports import Refusal

CellState = Literal["new", "unchanged", "impossible", "excluded"]
CellOutcome = Literal["built", "reused", "failed", "impossible", "not-run"]
Merging = Literal["none", "by-model"]


@record
class Needs:
    """What a cell asks of the machine that builds it."""

    cpus: Annotated[float, "cores"] = 1.0
    memory_bytes: Annotated[int | None, "None: as measured before, or by the model's size"] = None
    num_gpus: float = 0.0
    accelerator_type: Annotated[str, "such as H100; empty: any"] = ""
    resources: Annotated[Mapping[str, float], "amounts by name, such as xeon: 1"] = field(
        default_factory=dict
    )


@record
class FleetModel:
    """A model of a fleet, or all that match a glob; a text in the file is the path alone."""

    path: Annotated[str, "path or glob, relative to the file, or what `aotc build` takes"]
    name: Annotated[str, "empty: the file's name without its suffix"] = ""
    fixtures: str = ""
    calibration: str = ""


@record
class CellSettings:
    """What rows of the file state of the cells that they match; None: as without it."""

    dims: Mapping[str, int | str] = field(default_factory=dict)
    precision: str | None = None
    needs: Needs | None = None
    required: Annotated[bool | None, "whether its failure fails the fleet (default: true)"] = None
    timeout_seconds: float | None = None
    output: Annotated[str | None, "path of the artifact"] = None


@record
class CellMatch:
    """Which cells a row is about: globs of names; empty: all."""

    model: str = ""
    profile: str = ""
    target: str = ""


@record
class FleetRow:
    """Settings of the cells that match; later rows come first."""

    match: CellMatch
    settings: CellSettings = CellSettings()


@record
class Exclusion:
    """Cells that are not built."""

    match: CellMatch
    reason: str = ""


@record
class Fleet:
    """A fleet's file."""

    schema: Annotated[Literal["aotc.fleet/1"], "version of this schema"]
    name: Name
    models: tuple[FleetModel, ...]
    profiles: tuple[str, ...] = ("edge",)
    targets: tuple[str, ...] = ("host",)
    exclude: tuple[Exclusion, ...] = ()
    rows: tuple[FleetRow, ...] = ()
    output: Annotated[str, "path of artifacts with {model}, {profile} and {target}"] = (
        "artifacts/{model}/{profile}/{target}.aotc"
    )
    merge: Merging = "none"


@record
class Cell:
    """One model with one profile for one target, with what rows state of it."""

    model: str
    profile: str
    target: str
    source: Annotated[str, "the model's path"]
    output: str
    needs: Needs = Needs()
    required: bool = True
    timeout_seconds: float | None = None
    settings: Mapping[str, Json] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of the cell in reports: `model/profile/target`."""
        return f"{self.model}/{self.profile}/{self.target}"


@record
class PlannedCell:
    """A cell, what is to be done about it, and what it took last time."""

    cell: Cell
    state: CellState
    reason: Annotated[str, "why it is impossible here, or excluded"] = ""
    refusal: Refusal | None = None
    key: Annotated[str, "of the build cache; empty: nothing is known before it is built"] = ""
    last_seconds: float | None = None
    last_memory_bytes: int | None = None


@record
class WorkerDescription:
    """Where a cell was built: the host, its packages, and the sources of aotc."""

    name: str
    cpu: str = ""
    isa: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    sources: Annotated[str, "digest of aotc's own modules"] = ""
    needs_served: Annotated[Needs, "what it has of each"] = Needs()
    clock_offset_seconds: float = 0.0


@record
class CellResult:
    """What became of a cell."""

    cell: Cell
    outcome: CellOutcome
    key: str = ""
    artifact_id: str = ""
    refusals: tuple[Refusal, ...] = ()
    findings: tuple[str, ...] = ()
    seconds: float = 0.0
    peak_memory_bytes: int | None = None
    worker: WorkerDescription | None = None
    attempts: Annotated[int, "more than 1: workers were lost"] = 1


@record
class FleetReport:
    """What became of all cells of a fleet, or of a share of them."""

    fleet: str
    executor: str
    cells: tuple[CellResult, ...]
    plan: Annotated[str, "sha256 of the names of all cells; equal in all shards of a fleet"] = ""
    shard: Annotated[str, "I/N, or I,J/N of what was joined; empty: all cells"] = ""
    merged: Annotated[tuple[str, ...], "artifacts made of several cells"] = ()
    workers: tuple[WorkerDescription, ...] = ()
    seconds: float = 0.0
