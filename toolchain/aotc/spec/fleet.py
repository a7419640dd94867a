"""The file of a fleet, its plan and its report: models by profiles by targets.

A *cell* is one model with one profile for one target.  A file that states nothing but models is
complete: each is built with the profile `edge` for the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from aotc.base.records import field, record, replace
from aotc.spec.allowed_values import read_allowed
from aotc.spec.codec import Aliases, Bounds, Json, ParseError, Problem, decode
from aotc.spec.payload import Finding
from aotc.spec.precision import PRECISION_ALIASES, Name, WantedPrecision
from aotc.spec.profile import RandomPolicy
from aotc.spec.reports import Refusal
from aotc.spec.run_report import Gate, Measurement
from aotc.spec.shapes import DimRange

CellState = Literal["new", "unchanged", "impossible", "excluded"]
CellOutcome = Literal["built", "reused", "failed", "impossible", "not-run"]
Merging = Literal["none", "by-model"]


@record
class Needs:
    """What a cell asks of the machine that builds it."""

    cpus: Annotated[float, Bounds(0.01, 4096), "cores"] = 1.0
    memory_bytes: Annotated[
        int | None, Bounds(1), "null: as measured before, or by the model's size"
    ] = None
    num_gpus: Annotated[float, Bounds(0, 4096)] = 0.0
    accelerator_type: Annotated[str, "such as H100; empty: any"] = ""
    resources: Annotated[
        Mapping[str, Annotated[float, Bounds(0)]], "amounts by name, such as xeon: 1"
    ] = field(default_factory=dict)


@record
class _StatedModel:
    """A model of a fleet, or all that match a glob."""

    path: Annotated[
        str, Bounds(1), "path or glob, relative to the file, or what `aotc build` takes"
    ]
    name: Annotated[Name | None, "null: the file's name without its suffix"] = None
    fixtures: Annotated[str, "inputs to compare on, as --fixtures; relative to the file"] = ""
    calibration: Annotated[str, "samples to quantize with, as --calibration"] = ""
    trust_source: Annotated[bool, "code of the source may be run, as --trust-source"] = False


@record
class FleetModel(_StatedModel):
    """A model of a fleet, or all that match a glob; a text in the file is the path alone."""

    @classmethod
    def json_schema(cls, plain_of: Callable[[type], dict[str, Json]]) -> dict[str, Json]:
        """The JSON Schema of what `from_json` reads; `plain_of` gives the schema of a record."""
        path = {"type": "string", "minLength": 1, "description": "the path alone"}
        return {"description": cls.__doc__, "anyOf": [path, plain_of(_StatedModel)]}

    @classmethod
    def from_json(cls, data: Json) -> FleetModel:
        """Read a path, or a mapping of the fields; raises `ParseError`."""
        stated = decode(_StatedModel, {"path": data} if isinstance(data, str) else data)
        return cls(
            path=stated.path,
            name=stated.name,
            fixtures=stated.fixtures,
            calibration=stated.calibration,
            trust_source=stated.trust_source,
        )


@record
class CellSettings:
    """What rows of the file state of the cells that they match; null: as without it."""

    dims: Annotated[Mapping[str, DimRange], "as --dim of `aotc build`"] = field(
        default_factory=dict
    )
    values: Annotated[Mapping[str, str], "as --value"] = field(default_factory=dict)
    precision: Annotated[
        Annotated[WantedPrecision, Aliases(tuple(PRECISION_ALIASES.items()))] | None,
        "as --precision",
    ] = None
    random: Annotated[RandomPolicy | None, "as --random"] = None
    allow_unproven: Annotated[bool | None, "as --allow-unproven"] = None
    embed_fixtures: Annotated[bool | None, "as --embed-fixtures"] = None
    needs: Needs | None = None
    required: Annotated[bool | None, "whether its failure fails the fleet (default: true)"] = None
    timeout_seconds: Annotated[float | None, Bounds(1, 10_000_000), "default: 3600"] = None
    output: Annotated[str | None, Bounds(1), "path of the artifact, as `output` below"] = None

    def problems(self) -> list[Problem]:
        """Values that are none."""
        found = []
        for name, text in self.values.items():
            try:
                read_allowed(text)
            except ParseError as error:
                found += [replace(each, path=f"values.{name}") for each in error.problems]
        return found


@record
class CellMatch:
    """Which cells a row is about: globs of names; empty: all."""

    model: str = ""
    profile: str = ""
    target: str = ""


@record
class FleetRow:
    """Settings of the cells that match; what a later row states comes first."""

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
    models: Annotated[tuple[FleetModel, ...], Bounds(1, 100_000)]
    profiles: Annotated[
        tuple[str, ...], Bounds(1, 1000), "built-in names, or files relative to this one"
    ] = ("edge",)
    targets: Annotated[
        tuple[str, ...],
        Bounds(0, 1000),
        "host, built-in names, or files relative to this one; none: that of each profile",
    ] = ()
    exclude: tuple[Exclusion, ...] = ()
    rows: tuple[FleetRow, ...] = ()
    output: Annotated[
        str,
        Bounds(1),
        "path of artifacts, relative to this file, with {fleet}, {model}, {profile} and {target}",
    ] = "artifacts/{model}/{profile}/{target}.aotc"
    merge: Annotated[Merging, "by-model: what was built of a model becomes one artifact"] = "none"
    merged_output: Annotated[
        str, Bounds(1), "path of merged artifacts, with {fleet}, {model} and {profile}"
    ] = "artifacts/{model}/{profile}.aotc"


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
    timeout_seconds: float = 3600.0

    @property
    def name(self) -> str:
        """Of the cell in reports: `model/profile/target`."""
        return f"{self.model}/{self.profile}/{self.target}"


@record
class PlannedCell:
    """A cell, what is to be done about it, and what it took last time."""

    cell: Cell
    state: CellState
    reason: Annotated[
        str, "why it is excluded or impossible, or built although it was built before"
    ] = ""
    refusals: Annotated[tuple[Refusal, ...], "why it is impossible here"] = ()
    key: Annotated[str, "of the build cache; empty: not known before it is built"] = ""
    workers: Annotated[tuple[str, ...], "who can build it; empty: all"] = ()
    last_seconds: Annotated[float | None, "what it took last time; null: never built"] = None
    last_memory_bytes: int | None = None


@record
class FleetPlan:
    """`aotc fleet build --plan --json`."""

    schema: Literal["aotc.fleet-plan/1"] = "aotc.fleet-plan/1"
    fleet: str
    executor: str
    shard: Annotated[str, "I/N; empty: all cells"] = ""
    cells: tuple[PlannedCell, ...]
    workers: tuple[WorkerDescription, ...] = ()


@record
class WorkerDescription:
    """Where a cell was built: the host, its packages, and the sources of aotc."""

    name: str
    cpu: str = ""
    isa: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    sources: Annotated[str, "digest of aotc's own modules"] = ""
    serves: Annotated[Needs, "what it has of each"] = Needs()
    clock_offset_seconds: float = 0.0


@record
class CellResult:
    """What became of a cell."""

    cell: Cell
    outcome: Annotated[
        CellOutcome, "reused: an equal build was there, in its place or in the build cache"
    ]
    key: Annotated[str, "of the build cache; empty: not known"] = ""
    key_id: Annotated[str, "of who signed; empty: an identity"] = ""
    artifact_id: str = ""
    refusals: tuple[Refusal, ...] = ()
    findings: Annotated[tuple[Finding, ...], "what its build noticed"] = ()
    seconds: float = 0.0
    peak_memory_bytes: int | None = None
    worker: WorkerDescription | None = None
    attempts: Annotated[int, "more than 1: workers were lost"] = 1
    gates: Annotated[tuple[Gate, ...], "what its build judged"] = ()
    measurements: tuple[Measurement, ...] = ()

    @property
    def is_lost(self) -> bool:
        """Whether it is required, and not there."""
        return self.cell.required and self.outcome not in ("built", "reused")


@record
class MergedArtifact:
    """An artifact made of several cells of one model."""

    model: str
    profile: str
    output: str
    artifact_id: str = ""
    cells: Annotated[tuple[str, ...], "names of those that it is made of"] = ()
    artifacts: Annotated[tuple[str, ...], "their ids"] = ()
    refusals: Annotated[tuple[Refusal, ...], "why it was not made"] = ()


@record
class FleetReport:
    """`aotc fleet build --json`: what became of all cells of a fleet, or of a share of them."""

    schema: Literal["aotc.fleet-report/1"] = "aotc.fleet-report/1"
    fleet: str
    executor: str
    cells: tuple[CellResult, ...]
    plan: Annotated[str, "sha256 of the names of all cells; equal in all shards of a fleet"] = ""
    shard: Annotated[str, "I/N, or I,J/N of what was joined; empty: all cells"] = ""
    merged: tuple[MergedArtifact, ...] = ()
    workers: tuple[WorkerDescription, ...] = ()
    findings: Annotated[tuple[Finding, ...], "of the run itself"] = ()
    seconds: float = 0.0

    @property
    def succeeded(self) -> bool:
        """Whether each required cell is there, and all that is merged."""
        lost = any(each.is_lost for each in self.cells)
        return not lost and not any(each.refusals for each in self.merged)
