"""One runnable form of a model, and all that its artifact promises about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Annotated, Any, Final, Literal

from aotc.base.records import MISSING, field, fields, record, replace
from aotc.spec.codec import Bounds, Json
from aotc.spec.payload import PayloadPath, PlainName
from aotc.spec.precision import Arithmetic, DecidedOutput, OutputGate, TaskVerdict, Tolerance
from aotc.spec.providers import RefusedCapture
from aotc.spec.shapes import Domain
from aotc.spec.target import CustomOps, Libc, Plugin
from aotc.spec.versions import release

Optimization = Literal["disable", "basic", "extended", "layout", "all"]
# As the Python package of ONNX Runtime names them.
LEVEL_NAMES: Final[Mapping[Optimization, str]] = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}

_SAME_EVERYWHERE = "the same on every CPU"

# The pass of that name counts in `matched` under names that begin so, why it kept nodes.
HALF_PRECISION: Final = "half-precision"
# The name of the pass that quantizes.
QUANTIZE: Final = "quantize"
SMOOTH: Final = "smooth-activations"
# How the record of a quantization counts the ranges that leave out outliers.
CLIPPED: Final = "clipped ranges"
# Weights are stored in half precision, and all is computed in float32.
STORED_IN_HALF: Final = "store-in-half"
KEPT: Final = "kept: "
# The distributions whose rules fuse graphs for CUDA, and that by which blocks are quantized.
FUSING: Final = ("onnxscript", "onnx-ir")
_BLOCKS: Final = ("onnx-ir",)


@record
class SessionSpec:
    """How the runtime creates the session."""

    optimization: Annotated[Optimization, "graph optimization level"]
    config: Annotated[Mapping[str, str], "session config entries"] = field(default_factory=dict)
    provider_options: Annotated[Mapping[str, Mapping[str, str]], "by provider"] = field(
        default_factory=dict
    )
    threads: Annotated[int | None, "for one operator; None: one for each core"] = None
    shrinks: Annotated[
        bool, "each call gives back the arena's memory that is not in use at its end"
    ] = False


@record
class NodePlacement:
    """Where one node runs."""

    name: str
    op: Annotated[str, "domain::op_type; without domain for ONNX's own"]
    provider: str
    flops: Annotated[int, "at the optimal shape; of a predicted placement, if known"] = 0


@record
class Placement:
    """Where every node runs, by the node names of ORT's assignment record."""

    origin: Certainty
    nodes: tuple[NodePlacement, ...]
    share: Annotated[Mapping[str, float], "share of nodes by provider, rounded to 4 digits"]
    partitions: Annotated[int, "sequences of nodes with the same provider, in node order"] = 1


@record
class TransferTotals:
    """How much moves between providers in one call."""

    count: int = 0
    bytes: Annotated[int, "at the optimal shape, if sizes are known"] = 0
    bytes_max: Annotated[int, "at the largest shape, if sizes are known"] = 0


@record
class MemoryPlan:
    """Memory by purpose, in bytes.

    Activations are the sum of all nodes' outputs, which is an upper bound.
    """

    weights_bytes: int
    input_bytes_max: Annotated[int, "all inputs at the largest shape"] = 0
    activation_bytes_max: Annotated[int | None, "at the largest shape; None: not counted"] = None


@record
class Parity:
    """The verdict of a variant's comparison with the model; the evidence holds the errors."""

    status: Literal["passed", "not-run"]
    reason: str = ""
    arithmetic: Arithmetic = "float32"
    tolerance: Tolerance | None = None
    shapes: Annotated[tuple[Mapping[str, int], ...], "sizes of the dims in each comparison"] = ()
    padded: Annotated[int, Bounds(0), "comparisons with padded inputs for the variant"] = 0
    gates: Annotated[Mapping[str, OutputGate], "limits that the profile states, by output"] = field(
        default_factory=dict
    )
    slices: Annotated[
        tuple[str, ...],
        "outputs whose every slice was judged by its own scale, without regard to the noise of the "
        "original; a load judges them so too",
    ] = ()
    decided: Annotated[
        Mapping[str, DecidedOutput], "outputs of whole numbers that floats decide, by name"
    ] = field(default_factory=dict)
    task: Annotated[TaskVerdict | None, "None: not judged by a task"] = None


@record
class Variant:
    """One runnable form of the model: a component of the ORT package."""

    name: PlainName
    spec: Annotated[str, "variant of the profile that it is made for; empty: its own name"] = ""
    buckets: Annotated[Mapping[str, int], "its bucket of each dim; empty: the dynamic variant"] = (
        field(default_factory=dict)
    )
    component: Annotated[PlainName, "component of the ORT package"]
    providers: Annotated[tuple[str, ...], "as ORT names them, in order"]
    device: str = "cpu"
    precision: str = "keep"
    model: PayloadPath
    weights: Annotated[PayloadPath | None, "folder of the shared weights"] = None
    files: Annotated[tuple[PayloadPath, ...], "all files that a session of this variant reads"]
    session: SessionSpec
    domain: Annotated[Domain | None, "if narrower than the artifact's"] = None
    passes: tuple[PassRecord, ...] = ()
    shape_nodes: Annotated[int, Bounds(0), "nodes in its graph that compute shapes"] = 0
    shape_nodes_dropped: Annotated[
        int, Bounds(0), "such nodes of the imported graph that were removed"
    ] = 0
    placement: Placement
    transfers: TransferTotals = TransferTotals()
    partitioning: Annotated[PartitionReport | None, "None if one provider runs all nodes"] = None
    memory: MemoryPlan
    cuda_graphs: Annotated[GraphCapture | None, "captured CUDA graphs; None: no capture"] = None
    in_place: Annotated[
        Mapping[str, str], "outputs that may be written where an input is, by that input"
    ] = field(default_factory=dict)
    integer_products: Annotated[
        IntegerProducts | None, "of a quantized model on an x86-64 CPU alone; None: of others"
    ] = None
    computed_products: Annotated[
        ComputedProducts | None,
        "of a quantized variant on the CPU provider alone, as its loaded graph computes them",
    ] = None
    parity: Parity
    requirements: Requirements


@record
class DroppedVariant:
    """A variant that the fallback policy left out; with `rejects`, its calls are refused."""

    name: str
    spec: str
    buckets: Mapping[str, int] = field(default_factory=dict)
    rejects: bool = False
    reason: str


# How a variant's graph is divided among execution providers, as the manifest records it.


# How a placement is known: from a session, or concluded without one.
Certainty = Literal["observed", "predicted"]


@record
class Compute:
    """Floating-point operations and bytes moved, by the formulas of `partitioning.compute`."""

    flops: int = 0
    bytes: Annotated[int, "all inputs and outputs of the nodes"] = 0
    unknown: Annotated[int, "nodes whose sizes shape inference does not give"] = 0


@record
class ProviderShare:
    """The part of the graph, before compilation, that one provider runs."""

    provider: str
    nodes: int
    partitions: int
    node_share: float
    flops_share: Annotated[float, "at the optimal shape"]
    opt: Compute
    max: Compute


@record
class Partition:
    """Nodes that one provider runs as one: convex, and in order of execution."""

    name: str
    provider: str
    nodes: int
    ops: Annotated[Mapping[str, int], "nodes by domain::op_type"]
    subgraph: Annotated[
        str, "control flow node and attribute of the subgraph it is in; empty: the main graph"
    ] = ""
    file: Annotated[PayloadPath | None, "compiled file"] = None
    compiled: Annotated[bool, "one EPContext node replaces it"] = False


@record
class Transfer:
    """One tensor that goes from one provider to another."""

    value: str
    source: Annotated[str, "provider that computes it; empty: the caller"]
    target: Annotated[str, "provider that reads it"]
    dtype: str = ""
    bytes: Annotated[int | None, "at the optimal shape; None: unknown"] = None
    bytes_max: Annotated[int | None, "at the largest shape; None: unknown"] = None


@record
class RefusedNode:
    """A node that a provider of the variant was offered and did not take."""

    node: str
    op: str
    provider: Annotated[str, "provider that refused it"]
    reason: str


@record
class PartitionReport:
    """How a variant's graph was divided among its providers."""

    origin: Certainty
    providers: tuple[ProviderShare, ...]
    partitions: tuple[Partition, ...]
    alternations: Annotated[int, "changes of provider along the main graph's order of execution"]
    transfers: tuple[Transfer, ...] = ()
    refusals: tuple[RefusedNode, ...] = ()


CapturingSessions = Literal["one", "each"]


@record
class GraphCapture:
    """Sizes that are captured when the variant is warmed up, and what is done with others.

    A captured graph is replayed with one launch.  It belongs to one combination of sizes, and reads
    and writes fixed buffers.
    """

    sizes: Annotated[
        tuple[Mapping[str, int], ...], "sizes of the free dims, each captured at warm-up"
    ]
    on_call: Annotated[bool, "further sizes are captured at their first call"] = False
    max_count: Annotated[int, Bounds(1), "captured sizes that are kept"] = 32
    max_bytes: Annotated[int, Bounds(0), "of device memory for captures"] = 8 << 30
    on_refusal: Annotated[RefusedCapture, "if a capture is refused: fail, or run without"] = "fail"
    sessions: Annotated[
        CapturingSessions, "one: of all sizes; each: every captured size has one of its own"
    ] = "one"


# How a variant multiplies 8-bit integers, and whether its answers depend on the CPU.


ProductForm = Literal["rewritten", "seven-bits", "exact-signs", "not-fused", "feature", "same-cpu"]
Operands = Literal["exact-signs", "seven-bits", "saturating-signs"]


@record
class IntegerProducts:
    """How a variant on an x86-64 CPU multiplies 8-bit integers.

    Sums of products of an unsigned and a signed operand saturate on CPUs without VNNI; those of
    operands of one sign, or with weights in 7 bits, do not.
    """

    form: Annotated[
        ProductForm,
        "rewritten: weights are written in the sign of the activations; seven-bits: weights are "
        "small enough as they are; exact-signs: sums of operands of these signs do not saturate; "
        "not-fused: the graph computes in floating point; feature: sums are exact with a CPU "
        "feature, which is required; same-cpu: as proven on CPUs with just the required features",
    ]
    feature: Annotated[str, "CPU feature that makes all sums exact; empty: none is needed"] = ""
    products: Annotated[
        Mapping[Operands, Annotated[int, Bounds(1)]], "nodes of the loaded graph, by operands"
    ] = field(default_factory=dict)

    @property
    def portable(self) -> bool:
        """Whether the sums are the same on every x86-64 CPU."""
        return self.form not in ("feature", "same-cpu")

    def in_words(self) -> tuple[str, str]:
        """On which CPUs the sums are the same, and why."""
        if self.form == "feature":
            return f"exact with {self.feature}", "weights are as in the model"
        if self.form == "same-cpu":
            return "exact on CPUs like this", "some products could not be rewritten"
        why = {
            "rewritten": "weights are written in the sign of the activations",
            "seven-bits": "weights are within 7 bits as they are",
            "exact-signs": "operands have signs whose sums do not saturate",
            "not-fused": "nothing is fused: it computes in floating point",
        }
        return _SAME_EVERYWHERE, why[self.form]


@record
class ComputedProducts:
    """The products with constant weights of the graph that runs: which compute in low precision."""

    quantized: Annotated[int, Bounds(0), "in integers, or with weights in blocks of them"] = 0
    in_float: Annotated[int, Bounds(0), "in floating point"] = 0
    names: Annotated[tuple[str, ...], "of those in floating point, the first 64"] = ()

    @property
    def total(self) -> int:
        """All of them."""
        return self.quantized + self.in_float

    def in_words(self) -> str:
        """Such as `quantized 41 of 43 products; 2 run in float: a, b`."""
        said = f"quantized {self.quantized} of {self.total} products"
        if not self.in_float:
            return said
        names = ", ".join(self.names[:3]) + (", ..." if self.in_float > 3 else "")
        return f"{said}; {self.in_float} run{'s' * (self.in_float == 1)} in float: {names}"


@record
class Requirements:
    """What a host must have to run a variant."""

    os: str
    architecture: str
    libc: Annotated[Libc | None, "name and minimum version"] = None
    isa: Annotated[tuple[str, ...], "CPU features that the host must have"] = ()
    isa_exact: Annotated[bool, "the host must have no other features that matter"] = False
    onnxruntime_min: str
    onnxruntime_below: Annotated[str, "first version that was not proven"]
    providers: Annotated[tuple[str, ...], Bounds(1)]
    plugins: tuple[Plugin, ...] = ()
    custom_ops: Annotated[
        tuple[CustomOps, ...], "libraries of custom operators, registered in this order"
    ] = ()
    compatibility: Annotated[Mapping[str, str], "the provider's own compatibility string"] = field(
        default_factory=dict
    )
    nvidia_driver_min: str | None = None
    cuda_major: int | None = None
    compute_capabilities: tuple[str, ...] = ()

    def merged(self, others: Iterable[Requirements]) -> Requirements:
        """These requirements with those that `others` state in optional fields.

        Lists are joined, and CPU features sorted by name; the greatest number and version applies.
        """
        requirements = (self, *others)
        merged = {}
        for field_ in fields(self):
            optional = field_.default is not MISSING or field_.default_factory is not MISSING
            stated = [value for one in requirements if (value := getattr(one, field_.name))]
            if optional and stated:
                merged[field_.name] = _merged(stated)
        if "isa" in merged:
            merged["isa"] = tuple(sorted(set(merged["isa"])))
        return replace(self, **merged)


# For a part of a variant, which states some fields; `merged` adds them to the variant's.
NO_REQUIREMENTS: Final = Requirements(
    os="", architecture="", onnxruntime_min="", onnxruntime_below="", providers=()
)


def _merged(stated: list[Any]) -> Any:
    if isinstance(stated[0], tuple):
        return tuple(chain.from_iterable(stated))
    if isinstance(stated[0], Mapping):
        return {key: value for mapping in stated for key, value in mapping.items()}
    return max(stated, key=_sort_key)


def _sort_key(value: str | int | Libc) -> tuple[int, ...] | int:
    if isinstance(value, Libc):
        return release(value.version or "")
    return release(value) if isinstance(value, str) else value


@record
class PassRecord:
    """One pass that ran, with its options and its effect."""

    name: str
    options: Mapping[str, Json] = field(default_factory=dict)
    nodes_before: int
    nodes_after: int
    matched: Annotated[Mapping[str, int], "what it found, by name of the pattern"] = field(
        default_factory=dict
    )
    kept: Annotated[tuple[str, ...], "nodes that it left as they were, although it applies"] = ()

    @property
    def fused(self) -> bool:
        """Whether it fused something for CUDA, by rules of the libraries `FUSING`."""
        return self.name.startswith("fuse-") and bool(self.matched)

    @property
    def libraries(self) -> tuple[str, ...]:
        """The distributions that decided what it wrote, beside those of every build."""
        if self.fused:
            return FUSING
        in_blocks = self.name == QUANTIZE and self.options.get("form") == "weights"
        return _BLOCKS if in_blocks else ()


@record
class Toolchain:
    """Versions of the software that built the artifact."""

    aotc: str
    python: str
    onnx: str
    onnxruntime: str
    onnxruntime_build: str = ""
    numpy: str = ""
    onnxscript: Annotated[str, "only if a graph was fused for CUDA"] = ""
    onnx_ir: Annotated[
        str, "only if a graph was fused for CUDA, or weights quantized in blocks"
    ] = ""
    plugins: tuple[Plugin, ...] = ()
