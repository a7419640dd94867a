"""The types between the stages of a build: one frozen record per stage, the input of the next.

SourceModel -> AnalyzedModel -> SpecializedModel (one per variant) -> OptimizedModel ->
ClaimedModel -> PartitionedModel -> LoweredModel -> ProvenModel -> Artifact -> SignedArtifact.
Each record holds the previous one, and those of variants have a `plan`.
Graphs are files in the build's work folder; a stage that changes one writes another file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from aotc.base.errors import AotcError
from aotc.base.files.reading import FileState, file_state
from aotc.base.records import field, record
from aotc.graph.partition.assignment import Assignment, Sizes
from aotc.graph.symbols import Symbols
from aotc.graph.view import GraphView
from aotc.precision.half_conversion import HALF_TYPES
from aotc.providers.base import SessionUse
from aotc.sizes.shown import OutputTraits
from aotc.sources.base import Taken
from aotc.spec.buckets import by_size
from aotc.spec.codec import Json
from aotc.spec.evidence import Comparison, OutputNoise, VariantEvidence
from aotc.spec.manifest import Capture, ControlPath, Randomness
from aotc.spec.parted import PartedAxis
from aotc.spec.payload import FileEntry, Finding, Value, ValueShapes
from aotc.spec.precision import DecidedOutput, Level, Precision, Prepack, QuantizationSpec
from aotc.spec.profile import Profile, VariantSpec
from aotc.spec.providers import CAPTURING, GRAPH_OPTION, CudaOptions
from aotc.spec.shapes import DimRange, Domain, Padding
from aotc.spec.trust_policy import SignedBy
from aotc.spec.variant import (
    Certainty,
    ComputedProducts,
    DroppedVariant,
    GraphCapture,
    MemoryPlan,
    NodePlacement,
    Operands,
    Parity,
    PartitionReport,
    PassRecord,
    Placement,
    RefusedNode,
    Requirements,
    SessionSpec,
)


@record
class SourceModel:
    """The model as given (`path`), and the staged graph that every later stage starts from.

    `weights` is the folder that the staged graph's external data refers to.  In `inputs`, `outputs`
    and the staged graph, dims have the names of `symbols`.  `reference` is the model in the form in
    which this CPU computes it exactly, if that is not `path`.  `retyped`: the profile gives inputs
    or outputs of float32 another type, which `path` does not have.  `relisted`: `path` lists an
    output twice, and the staged graph once.  `random` is what was settled of random numbers, as the
    staged graph draws or takes them.  `operators` are those of the model that libraries have, as
    domain::op_type, by the library's sha256.  `states` are those in which the model's files were
    read at first: later stages read them again.  `taken` is the framework's source that the model
    was captured from; None: it was given.
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
    retyped: bool = False
    relisted: bool = False
    random: Randomness | None = None
    operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    states: Mapping[Path, FileState] = field(default_factory=dict)
    taken: Taken | None = None

    def require_unchanged(self) -> None:
        """Raise AOTC-I086 if a file of the model was changed since it was read at first."""
        for path, state in self.states.items():
            try:
                changed = file_state(path) != state
            except OSError:
                changed = True
            if changed:
                what = "the model was changed while it was built"
                raise AotcError("AOTC-I086", what, where=str(path))

    @property
    def answering(self) -> tuple[Path, Path]:
        """The file whose answers are the expected ones, and the folder of its external data."""
        if self.reference is not None:
            return self.reference, self.reference.parent
        if self.retyped or self.relisted or self.random is not None:
            return self.graph, self.weights
        return self.path, self.path.parent


@record
class ReferenceRun:
    """One fixture: files of inputs and outputs, and the sizes of the dims.

    `exported` are the answers of the model that a framework's exporter made, where `outputs` are
    the framework's own.
    """

    name: str
    origin: str
    sizes: Mapping[str, int]
    inputs: Mapping[str, Path]
    outputs: Mapping[str, Path]
    finite: bool
    exported: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def read(cls, item: Json, folder: Path) -> ReferenceRun:
        """A run as a worker writes it, with files relative to `folder`."""
        return cls(
            name=item["name"],
            origin=item["origin"],
            sizes=item["sizes"],
            inputs={name: folder / path for name, path in item["inputs"].items()},
            outputs={name: folder / path for name, path in item["outputs"].items()},
            finite=item["finite"],
        )

    @property
    def first_output(self) -> Path:
        """The file of its first output, which no other run has."""
        return next(iter(self.outputs.values()))

    @property
    def input_paths(self) -> dict[str, str]:
        """The files of inputs, as a worker is given them."""
        return {name: str(path) for name, path in self.inputs.items()}

    @property
    def output_paths(self) -> dict[str, str]:
        """The files of outputs, as a worker is given them."""
        return {name: str(path) for name, path in self.outputs.items()}


@record
class TaskOriginal:
    """The labelled set of a task, and the original model's metric on it.

    `samples` and `value` are of all `files`, `data` is the sha256 of these.
    """

    files: tuple[Path, ...]
    data: str
    samples: int
    value: float


@record
class AnalyzedModel:
    """The source with its proven domain and the reference runs.

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
    # By output, the axes on which the graph joins it from parts, or takes it apart.
    parted: Mapping[str, tuple[PartedAxis, ...]] = field(default_factory=dict)
    # Runs on calibration data, by which statically quantized variants are judged.
    sampled: tuple[ReferenceRun, ...] = ()
    # None: the profile judges by no task.
    task: TaskOriginal | None = None
    # The original's own error in float32, where the profile asks for it.
    noise: tuple[OutputNoise, ...] = ()
    # Outputs of whole numbers and truth values that floats decide.
    decided: Mapping[str, DecidedOutput] = field(default_factory=dict)
    # Outputs of which the references show nothing, with what they answer; and those of which the
    # user's fixtures and samples do not.
    traits: tuple[OutputTraits, ...] = ()
    lacks: Mapping[str, str] = field(default_factory=dict)
    sampled_lacks: Mapping[str, str] = field(default_factory=dict)
    # None: the model has no control flow, or it is not known what ran.
    branches: tuple[ControlPath, ...] | None = None
    # The exported model's answers beside those of the framework that it is from.
    exported: tuple[Comparison, ...] = ()

    def references_of(self, plan: VariantPlan) -> tuple[ReferenceRun, ...]:
        """The runs that a variant is compared with."""
        if not self._is_sampled(plan):
            return self.references
        given = tuple(run for run in self.references if run.origin == "user")
        return (*given, *self.sampled)

    def lacks_of(self, plan: VariantPlan) -> Mapping[str, str]:
        """The outputs of which these runs show nothing, with what they answer."""
        return self.sampled_lacks if self._is_sampled(plan) else self.lacks

    def _is_sampled(self, plan: VariantPlan) -> bool:
        return bool(self.sampled) and plan.may_be_static


@record
class SpecializedModel:
    """One future variant: its graph with stated dims fixed, and the sizes that it accepts.

    `domain` is None if the graph accepts all sizes of the artifact.
    """

    analyzed: AnalyzedModel
    plan: VariantPlan
    domain: Domain | None
    component: str
    graph: Path
    passes: tuple[PassRecord, ...]
    # The folder of the graph's external data, if it is not that of the source.
    own_weights: Path | None = None
    # Whether the graph has integer products, or ONNX Runtime may make some, that the source lacks.
    quantized: bool = False

    @property
    def weights(self) -> Path:
        """The folder that the graph's external data refers to."""
        return self.own_weights or self.analyzed.source.weights

    @property
    def sizes(self) -> Domain:
        """The sizes that the variant's graph accepts."""
        return self.domain or self.analyzed.domain


@record
class OptimizedModel:
    """A variant's optimized graph; its external data is in `data`, which may not exist.

    `tensors` are names for the contents of its external tensors, in order: equal names mean equal
    bytes.  `shape_nodes` counts the nodes that compute shapes, before and after.  `rewritten`:
    weights of integer products were changed; `saturating` are the nodes whose results still depend
    on the CPU.
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
    # Integer products of the loaded graph, by operands; None if none were looked for.
    products: Mapping[Operands, int] | None = None
    # What computes in integers there, and the quantized weights that are made float in each call.
    computed: ComputedProducts | None = None
    dequantized: tuple[str, ...] = ()

    @property
    def plan(self) -> VariantPlan:
        """The variant's plan."""
        return self.specialized.plan


@record
class ClaimedModel:
    """A variant with the providers' claims of its nodes.

    `graph` refers to weights in the folder `weights`, which all variants share, and states the
    types of all values; `claims` are pairs of a provider's ORT name and its nodes, first choice
    first; `sizes` are at the optimal and the maximum shape, None if one provider runs all nodes.
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
        """The variant's plan."""
        return self.optimized.plan


@record
class Division:
    """A graph divided among providers: every node is on the first that claims and gets it.

    `refusals` are those of the claims, and those of providers that failed to compile nodes that
    they claimed.
    """

    graph: GraphView
    assignment: Assignment
    refusals: tuple[RefusedNode, ...]


@record
class PartitionedModel:
    """A variant with assigned nodes; `division` is None if one provider runs all of them."""

    claimed: ClaimedModel
    division: Division | None = None

    @property
    def plan(self) -> VariantPlan:
        """The variant's plan."""
        return self.claimed.plan


@record
class UndividedModel:
    """A variant with nodes that none of its providers runs, and the refusal that names them.

    The fallback policy decides on it together with variants that cannot be compiled, in order.
    """

    claimed: ClaimedModel
    refusal: AotcError

    @property
    def plan(self) -> VariantPlan:
        """The variant's plan."""
        return self.claimed.plan


@record
class LoweredModel:
    """A runnable variant: model file, folder of shared weights, and how to create the session.

    `files` are the files of `weights` that the model refers to, `contexts` the compiled parts that
    it reads from its own folder; `why_not_run` is why this machine cannot run it, empty if it can.
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
    planned_placement: tuple[NodePlacement, ...] = ()
    why_not_run: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def plan(self) -> VariantPlan:
        """The variant's plan."""
        return self.partitioned.plan

    @property
    def captures(self) -> bool:
        """Whether its session captures CUDA graphs."""
        options = self.session.provider_options.values()
        return any(stated.get(GRAPH_OPTION) == "1" for stated in options)

    @property
    def cuda_graphs(self) -> GraphCapture | None:
        """The captured sizes, of which dims without buckets have their optimal size."""
        if not self.captures:
            return None
        options, dims = self.plan.cuda.graphs, self.analyzed.domain.dims
        return GraphCapture(
            sizes=tuple(
                {name: buckets.get(name, dim.opt) for name, dim in dims.items()}
                for buckets in by_size(self.plan.captures)
            ),
            on_call=options.capture == "calls",
            max_count=options.max_count,
            max_bytes=options.max_bytes,
            on_refusal=options.on_refusal,
            sessions="each" if self.use.apart else "one",
        )

    @property
    def use(self) -> SessionUse:
        """What its session is for, and what its providers ask of its graph."""
        return SessionUse(
            cuda=self.plan.cuda,
            operators=tuple(op for _, op in self.optimized.nodes),
            names=tuple(name for name, _ in self.optimized.nodes),
            fused=any(item.fused for item in self.optimized.specialized.passes),
            captured=len(self.plan.captures) if self.captures else 0,
            weights_bytes=self.memory.weights_bytes,
            alone=self._has_one_size,
        )

    @property
    def _has_one_size(self) -> bool:
        captured, fixed = self.plan.captures, self.plan.buckets
        domain = self.analyzed.domain
        # A dim that routes other sizes runs them without a graph, in the same session.
        routed = {name for name, dim in domain.dims.items() if "route" in dim.outside}
        free = {name for name, dim in domain.dims.items() if dim.min != dim.max} - fixed.keys()
        return len(captured) == 1 and not domain.also and free <= captured[0].keys() - routed

    @property
    def optimized(self) -> OptimizedModel:
        """The graph before it was divided."""
        return self.partitioned.claimed.optimized

    @property
    def analyzed(self) -> AnalyzedModel:
        """The analyzed model that the variant was made from."""
        return self.optimized.specialized.analyzed


@record
class LoweredVariants:
    """What lowering came to: runnable variants, those left out, and those refused.

    `refused` could not be lowered, and no other form is tried.  `weights` is the folder of the
    weights that all of them share.
    """

    lowered: tuple[LoweredModel, ...]
    left_out: tuple[DroppedVariant, ...]
    refused: tuple[tuple[VariantPlan, AotcError], ...]
    findings: tuple[Finding, ...]
    weights: Path


@record
class ProvenModel:
    """A variant with its placement, its parity, and what was measured."""

    lowered: LoweredModel
    placement: Placement
    parity: Parity
    evidence: VariantEvidence

    @property
    def plan(self) -> VariantPlan:
        """The variant's plan."""
        return self.lowered.plan


@record
class JudgedVariant:
    """The judgement of one variant, and the variant as far as it was measured.

    `breach` has every gate that it fails, the further ones in `also`; None if it passes all.
    """

    proven: ProvenModel | None = None
    breach: AotcError | None = None


@record
class ProvenVariants:
    """The result of all variants: proven, failed in the current form, refused, and left out.

    `refused` could not be lowered, and no other form is tried.  `measured` are those of `failed`
    that ran to the end.  `weights` are the entries of the files that they share.
    """

    proven: tuple[ProvenModel, ...]
    failed: tuple[tuple[LoweredModel, AotcError], ...]
    refused: tuple[tuple[VariantPlan, AotcError], ...] = ()
    measured: tuple[ProvenModel, ...] = ()
    left_out: tuple[DroppedVariant, ...]
    findings: tuple[Finding, ...]
    weights: tuple[FileEntry, ...]


@record
class Artifact:
    """A complete payload in `folder`; `digests` are by path and include aotc.json."""

    folder: Path
    artifact_id: str
    digests: Mapping[str, str]
    payload_bytes: int
    proven: tuple[ProvenModel, ...]
    findings: tuple[Finding, ...]

    @property
    def proven_here(self) -> dict[str, list[str]]:
        """The names of the variants that passed on this host, by the profile's variant."""
        found: dict[str, list[str]] = {}
        for item in self.proven:
            if item.parity.status == "passed":
                found.setdefault(item.plan.spec, []).append(item.plan.name)
        return found


@record
class SignedArtifact:
    """An artifact with its attestations, at its final path."""

    artifact: Artifact
    path: Path
    signed_by: SignedBy


@record
class VariantPlan:
    """One variant to be built: the profile's `spec`, for one bucket of each bucketed dim.

    `buckets` is empty for the variant that accepts all sizes.  `vnni` in `isa` is the companion of
    a baseline variant whose integer products need that feature.
    """

    name: str
    spec: str
    isa: Literal["baseline", "host", "vnni"]
    prepack: Prepack = "at-load"
    buckets: Mapping[str, int] = field(default_factory=dict)
    providers: tuple[str, ...] = ("cpu",)
    precision: Precision = "keep"
    quantization: QuantizationSpec = QuantizationSpec()
    # Names or patterns of nodes of the imported graph that a lower precision leaves in float32.
    keep_float32: tuple[str, ...] = ()
    # Names of nodes of the imported graph whose kernels fail in half precision: in float32, too.
    failing: tuple[str, ...] = ()
    threads: int | None = None
    optimization: Level | Literal["disable"] = "auto"
    # Only a level that the profile does not state may be lowered.
    may_lower_level: bool = True
    cuda: CudaOptions = CudaOptions()
    # The combinations of buckets that it takes and, if ONNX Runtime can, captures as CUDA graphs;
    # an empty one stands for the optimal sizes.
    captures: tuple[Mapping[str, int], ...] = ()
    # Whether ranges of activations are those of calibration data, if there is any.
    may_be_static: bool = False

    @property
    def half(self) -> str:
        """The half precision that its graph is changed to, or that of what is not quantized."""
        quantized = self.precision in ("int8", "int4")
        wanted = self.quantization.activations if quantized else self.precision
        return wanted if wanted in HALF_TYPES else ""

    @property
    def wants_graphs(self) -> bool:
        """Whether sizes are to be captured as CUDA graphs, at warm-up or at their first call."""
        wanted = self.providers[:1] == (CAPTURING.name,)
        return wanted and self.cuda.graphs.capture != "none" and bool(self.captures)

    @property
    def served(self) -> tuple[Mapping[str, int], ...]:
        """The combinations of buckets that it takes; a last empty one stands for all sizes."""
        if self.buckets:
            return (self.buckets,)
        return (*by_size([buckets for buckets in self.captures if buckets]), {})

    @property
    def required(self) -> bool:
        """Whether the profile asks for it; other variants only serve speed."""
        return self.isa != "vnni"

    @property
    def cpu_only(self) -> bool:
        """Whether ONNX Runtime's CPU provider runs all nodes."""
        return self.providers == ("cpu",)


def wanted_in_float32(spec: VariantSpec, profile: Profile) -> tuple[str, ...]:
    """Names or patterns of nodes that one of the profile's variants keeps in float32."""
    return profile.keep_float32 if spec.keep_float32 is None else spec.keep_float32
