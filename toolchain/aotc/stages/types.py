"""The build line: one frozen record a stage, each the only input of the next.

SourceModel -> AnalyzedModel -> SpecializedModel (one per variant) -> OptimizedModel ->
ClaimedModel -> PartitionedModel -> LoweredModel -> ProvenModel -> Artifact -> SignedArtifact.
Each record holds the one before it, and says itself which `plan` it follows.
Graphs live in files of the build's work folder; a stage that changes one writes another.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from aotc.contract.codec.parsing import Json
from aotc.contract.finding import Finding
from aotc.contract.manifest.divided_graph import Certainty, PartitionReport, RefusedNode
from aotc.contract.manifest.interface import Value, ValueShapes
from aotc.contract.manifest.payload_files import FileEntry
from aotc.contract.manifest.requirements import Requirements
from aotc.contract.manifest.source import Capture
from aotc.contract.manifest.toolchain import PassRecord
from aotc.contract.manifest.variant import (
    DroppedVariant,
    MemoryPlan,
    NodePlacement,
    Parity,
    Placement,
    SessionSpec,
)
from aotc.contract.profile_terms import Level, Precision, Prepack
from aotc.contract.results.build_evidence import VariantEvidence
from aotc.contract.shapes.dim_range import DimRange
from aotc.contract.shapes.domain import Domain
from aotc.contract.shapes.padding_rules import Padding
from aotc.errors import AotcError
from aotc.graphs.symbols import Symbols
from aotc.partitioning.assignment import Assignment
from aotc.partitioning.compute import Sizes
from aotc.partitioning.graph import PartitionGraph
from aotc.records import field, record


@record
class VariantPlan:
    """One variant to be built: the profile's `spec`, for one bucket of each bucketed dim.

    `buckets` is empty for the variant that takes all sizes.  Of `isa`, `vnni` is the form of a
    baseline variant whose integer products need that feature.
    """

    name: str
    spec: str
    isa: Literal["baseline", "host", "vnni"]
    prepack: Prepack = "at-load"
    buckets: Mapping[str, int] = field(default_factory=dict)
    providers: tuple[str, ...] = ("cpu",)
    precision: Precision = "keep"
    threads: int | None = None
    optimization: Level | Literal["disable"] = "auto"
    # A level that nobody stated may be lowered.
    steps: bool = True

    @property
    def needed(self) -> bool:
        """Whether the profile asks for it; the others are there to be quicker."""
        return self.isa != "vnni"

    @property
    def on_cpu_alone(self) -> bool:
        """Whether ONNX Runtime's CPU provider takes all."""
        return self.providers == ("cpu",)


@record
class SourceModel:
    """The model as given (`path`), and the staged graph that every later stage starts from.

    `weights` is the folder against which the staged graph's external data resolves.  Dims have the
    names that `symbols` gives them, in `inputs`, `outputs` and the staged graph.  `reference` is
    the model as this CPU has to be given it to compute what it says, where that is not `path`.
    """

    path: Path
    name: str
    graph: Path
    weights: Path
    capture: Capture
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    symbols: Symbols
    hints: Mapping[str, Mapping[str, Json]]
    passes: tuple[PassRecord, ...]
    reference: Path | None = None


@record
class ReferenceRun:
    """One fixture: input and output files, and the sizes of the dims."""

    name: str
    origin: str
    sizes: Mapping[str, int]
    inputs: Mapping[str, Path]
    outputs: Mapping[str, Path]
    finite: bool


@record
class AnalyzedModel:
    """The source with its proven domain and the reference's answers.

    `ranges` are what the profile states of dims, by their names after import.
    """

    source: SourceModel
    ranges: Mapping[str, DimRange]
    domain: Domain
    references: tuple[ReferenceRun, ...]
    activation_bytes: int | None
    shapes: tuple[ValueShapes, ...]
    padding: Padding | None
    findings: tuple[Finding, ...]


@record
class SpecializedModel:
    """One variant to be: its graph with stated dims fixed, and the sizes that it takes.

    `domain` is None where that is all of the artifact's.
    """

    analyzed: AnalyzedModel
    plan: VariantPlan
    domain: Domain | None
    component: str
    graph: Path
    passes: tuple[PassRecord, ...]

    @property
    def sizes(self) -> Domain:
        """The sizes that the variant's graph takes."""
        return self.domain or self.analyzed.domain


@record
class OptimizedModel:
    """A variant's optimized graph; its external data is in `data`, which may not exist.

    `tensors` name the contents of its external tensors, in order: equal names, equal bytes.
    `shape_nodes` counts the nodes that compute shapes, before and after.  `rewritten`: weights of
    integer products were; `saturating` are the nodes whose answers hang on the CPU all the same.
    """

    specialized: SpecializedModel
    graph: Path
    data: Path
    tensors: tuple[str, ...]
    nodes: tuple[tuple[str, str], ...]
    shape_nodes: tuple[int, int]
    findings: tuple[Finding, ...]
    passes: tuple[PassRecord, ...]
    rewritten: bool = False
    saturating: tuple[str, ...] = ()

    @property
    def plan(self) -> VariantPlan:
        """The variant that this is to be."""
        return self.specialized.plan


@record
class ClaimedModel:
    """Which provider would take which node, from the providers' own mouths.

    `graph` refers to weights in the folder `weights`, which all variants share, and has the types
    of all values; `claims` are by ORT's name of the provider, first choice first; `sizes` at the
    optimal and the largest shape, None where one provider takes all unasked.
    """

    optimized: OptimizedModel
    graph: Path
    weights: Path
    providers: tuple[str, ...]
    claims: tuple[tuple[str, frozenset[str]], ...] = ()
    refusals: tuple[RefusedNode, ...] = ()
    how: Certainty = "observed"
    sizes: tuple[Sizes, Sizes] | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def plan(self) -> VariantPlan:
        """The variant that this is to be."""
        return self.optimized.plan


@record
class Division:
    """One graph divided among providers: every node goes to the first that claims and gets it.

    `refusals` are those of the claims, and those of providers that claimed nodes and could not
    compile them.
    """

    graph: PartitionGraph
    assignment: Assignment
    refusals: tuple[RefusedNode, ...]


@record
class PartitionedModel:
    """Which provider takes which node; `division` is None where one provider takes all."""

    claimed: ClaimedModel
    division: Division | None = None

    @property
    def plan(self) -> VariantPlan:
        """The variant that this is to be."""
        return self.claimed.plan


@record
class UndividedModel:
    """A variant with nodes that run on none of its providers, and the refusal that says which.

    The fallback policy judges it among those that cannot be compiled, in the order of variants.
    """

    claimed: ClaimedModel
    refusal: AotcError

    @property
    def plan(self) -> VariantPlan:
        """The variant that this was to be."""
        return self.claimed.plan


@record
class LoweredModel:
    """A runnable variant: model file, shared weights folder, and how to create the session.

    `files` names the files of `weights` that the model refers to, `contexts` are the compiled parts
    that it reads from beside it; `why_not_run` says why this machine cannot run it (empty: it can).
    """

    partitioned: PartitionedModel
    model: Path
    weights: Path
    files: tuple[str, ...]
    session: SessionSpec
    memory: MemoryPlan
    contexts: tuple[Path, ...] = ()
    compatibility: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[Requirements, ...] = ()
    device: str = "cpu"
    providers: tuple[str, ...] = ()
    report: PartitionReport | None = None
    placed: tuple[NodePlacement, ...] = ()
    why_not_run: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def plan(self) -> VariantPlan:
        """The variant that this is to be."""
        return self.partitioned.plan

    @property
    def optimized(self) -> OptimizedModel:
        """The graph before it was divided."""
        return self.partitioned.claimed.optimized

    @property
    def analyzed(self) -> AnalyzedModel:
        """The model that the variant is a form of."""
        return self.optimized.specialized.analyzed


@record
class ProvenModel:
    """A variant with its observed placement, its verdict, and what was measured."""

    lowered: LoweredModel
    placement: Placement
    parity: Parity
    evidence: VariantEvidence

    @property
    def plan(self) -> VariantPlan:
        """The variant that this is."""
        return self.lowered.plan


@record
class ProvenVariants:
    """What was made of all variants: proven, failed in the form that was tried, and left out.

    `weights` are the entries of the files that they share.
    """

    proven: tuple[ProvenModel, ...]
    failed: tuple[tuple[LoweredModel, AotcError], ...]
    left_out: tuple[DroppedVariant, ...]
    findings: tuple[Finding, ...]
    weights: tuple[FileEntry, ...]


@record
class Artifact:
    """A complete payload in `folder`; `digests` by path, aotc.json included."""

    folder: Path
    artifact_id: str
    digests: Mapping[str, str]
    payload_bytes: int
    proven: tuple[ProvenModel, ...]
    findings: tuple[Finding, ...]


@record
class SignedArtifact:
    """An artifact with its attestations, at its final path."""

    artifact: Artifact
    path: Path
    key_id: str
    development_key: bool
