"""The manifest `payload/aotc.json`: everything that the artifact promises.

It holds no time, host name, user name, absolute path or measured figure, so that equal inputs
give equal bytes; what was measured stands in the evidence attestation (`contract.report`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Literal

from aotc.contract.manifest_fixtures import fixture_problems
from aotc.contract.manifest_shapes import shape_problems
from aotc.contract.padding import Padding
from aotc.contract.parsing import Bounds, Json, Pattern, Problem, record
from aotc.contract.partitions import AcceptedWaiver, DroppedVariant, PartitionReport
from aotc.contract.payload_path import PayloadPath
from aotc.contract.profile import Tolerance
from aotc.contract.shapes import Domain
from aotc.contract.target import Libc, Plugin

Sha256 = Annotated[str, Pattern(r"[0-9a-f]{64}")]
# As long as a file's name may be, and shown as it is.
NAME = r"[^\x00-\x1f\x7f/]+"
# Names that a build makes up, and that folders have.
PlainName = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")]
FixtureName = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")]
# Two threads that hash 100 MB share it evenly only where chunks are small.
CHUNK_BYTES = 16 << 20

Kind = Literal["tensor", "sequence", "optional", "map", "sparse"]


@record
class FileEntry:
    """One payload file other than aotc.json."""

    path: PayloadPath
    size: Annotated[int, Bounds(0)]
    sha256: Sha256
    role: Literal["package", "model", "weights", "fixture", "ep-context"]
    chunks: Annotated[
        tuple[Sha256, ...], "sha256 of each 16 MiB, for files larger than that; the last is shorter"
    ] = ()


@record
class Value:
    """A graph input or output. `shape`: sizes, dim names; None where the rank is unknown."""

    name: str
    kind: Kind = "tensor"
    dtype: Annotated[str, "numpy's name; string for text; of the elements of a sequence"]
    shape: tuple[int | str, ...] | None = None


@record
class ExternalFile:
    """A file of external data of the source model."""

    location: str
    size: int
    sha256: Sha256


@record
class ControlFlow:
    """One control-flow node: where it is, and its bodies with their node counts."""

    node: str
    op_type: str
    bodies: Annotated[Mapping[str, int], "nodes by attribute"]


@record
class Finding:
    """Something noticed that refuses nothing."""

    code: Annotated[str, Pattern(r"AOTC-[A-Z]\d{3}")]
    what: str
    where: str = ""


@record
class Capture:
    """Evidence of what was imported."""

    sha256: Annotated[Sha256, "of the model file as given"]
    size: int
    producer_name: str = ""
    producer_version: str = ""
    domain: str = ""
    model_version: int = 0
    graph_name: str = ""
    ir_version: int
    opsets: Mapping[str, int]
    nodes: Annotated[int, "in the main graph"]
    nodes_total: Annotated[int, "with bodies of control flow and functions"]
    op_types: Annotated[Mapping[str, int], "nodes by domain::op_type, bodies included"]
    initializers: int
    initializer_bytes: int
    constants: Annotated[int, "Constant nodes"] = 0
    functions: Annotated[tuple[str, ...], "domain::name of model-local functions"] = ()
    custom_ops: Annotated[tuple[str, ...], "domain::op_type outside of ONNX and ORT"] = ()
    contrib_ops: Annotated[tuple[str, ...], "domain::op_type of ORT's own domains"] = ()
    control_flow: tuple[ControlFlow, ...] = ()
    side_inputs: Annotated[
        tuple[str, ...], "outer values that bodies of control flow read, as node: value"
    ] = ()
    external_data: tuple[ExternalFile, ...] = ()
    quantized: Annotated[bool, "holds quantized operators"] = False
    half: Annotated[bool, "holds float16 or bfloat16 tensors"] = False
    metadata: Annotated[
        Mapping[str, int], "stripped from the graphs: bytes of doc_string and metadata_props"
    ] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@record
class PassRecord:
    """One pass that ran, with its options and its effect."""

    name: str
    options: Mapping[str, Json] = field(default_factory=dict)
    nodes_before: int
    nodes_after: int


@record
class Toolchain:
    """What built the artifact."""

    aotc: str
    python: str
    onnx: str
    onnxruntime: str
    onnxruntime_build: str = ""
    numpy: str = ""
    plugins: tuple[Plugin, ...] = ()


@record
class SessionSpec:
    """Exactly how the runtime creates the session."""

    optimization: Annotated[
        Literal["disable", "basic", "extended", "layout", "all"], "graph optimization level"
    ]
    config: Annotated[Mapping[str, str], "session config entries"] = field(default_factory=dict)
    provider_options: Annotated[Mapping[str, Mapping[str, str]], "by provider"] = field(
        default_factory=dict
    )
    threads: Annotated[int | None, "of one operator; None: one for each core"] = None


@record
class NodePlacement:
    """Where one node runs."""

    name: str
    op: Annotated[str, "domain::op_type; no domain for ONNX's own"]
    provider: str
    flops: Annotated[int, "at the optimal shape; of predicted placements, where known"] = 0


@record
class Placement:
    """Where every node runs, as ORT's assignment record names them."""

    how: Literal["observed", "predicted"]
    nodes: tuple[NodePlacement, ...]
    share: Annotated[Mapping[str, float], "of nodes, by provider, rounded to 4 digits"]
    partitions: Annotated[int, "runs of one provider in node order"] = 1


@record
class Transfers:
    """What crosses between providers in one call."""

    count: int = 0
    bytes: Annotated[int, "at the optimal shape, where sizes are known"] = 0
    bytes_max: Annotated[int, "at the largest shape, where sizes are known"] = 0


@record
class MemoryPlan:
    """Bytes by purpose; activations are the sum of all nodes' outputs, an upper bound."""

    weights_bytes: int
    input_bytes_max: Annotated[int, "all inputs at the largest shape"] = 0
    activation_bytes_max: Annotated[int | None, "at the largest shape, where it was counted"] = None


@record
class Parity:
    """The verdict on a variant; the errors themselves stand in the evidence."""

    status: Literal["passed", "not-run"]
    reason: str = ""
    arithmetic: Literal["float32", "float16", "quantized", "tf32", "bfloat16"] = "float32"
    tolerance: Tolerance | None = None
    shapes: Annotated[tuple[Mapping[str, int], ...], "sizes of the dims in each comparison"] = ()
    padded: Annotated[int, Bounds(0), "comparisons in which the variant got padded inputs"] = 0


@record
class Requirements:
    """What a host must have to run a variant."""

    os: str
    architecture: str
    libc: Annotated[Libc | None, "name, and the least version"] = None
    isa: Annotated[tuple[str, ...], "features the host must have"] = ()
    isa_exact: Annotated[bool, "and no other of those that matter"] = False
    onnxruntime_min: str
    onnxruntime_below: Annotated[str, "first version that is not proven"]
    providers: Annotated[tuple[str, ...], Bounds(1)]
    plugins: tuple[Plugin, ...] = ()
    compatibility: Annotated[Mapping[str, str], "the provider's own compatibility string"] = field(
        default_factory=dict
    )
    nvidia_driver_min: str | None = None
    cuda_major: int | None = None
    compute_capabilities: tuple[str, ...] = ()


@record
class Variant:
    """One runnable form of the model: a component of the ORT package."""

    name: PlainName
    spec: Annotated[str, "the profile's variant that it belongs to; empty: its own name"] = ""
    buckets: Annotated[
        Mapping[str, int], "the bucket of each dim that it is for; none: the dynamic variant"
    ] = field(default_factory=dict)
    component: Annotated[PlainName, "component of the ORT package"]
    providers: Annotated[tuple[str, ...], "as ORT names them, in order"]
    device: str = "cpu"
    precision: str = "keep"
    model: PayloadPath
    weights: Annotated[PayloadPath | None, "folder of the shared asset"] = None
    files: Annotated[tuple[PayloadPath, ...], "all that a session of this variant reads"]
    session: SessionSpec
    domain: Annotated[Domain | None, "where narrower than the artifact's"] = None
    passes: tuple[PassRecord, ...] = ()
    shape_nodes: Annotated[int, Bounds(0), "nodes that compute shapes, left in its graph"] = 0
    shape_nodes_dropped: Annotated[int, Bounds(0), "those of the imported graph that are gone"] = 0
    placement: Placement
    transfers: Transfers = Transfers()
    partitioning: Annotated[PartitionReport | None, "None where one provider takes all"] = None
    memory: MemoryPlan
    parity: Parity
    requirements: Requirements


@record
class FixtureTensor:
    """One array of a fixture: a `.npy` file, or JSON text for strings, sequences and maps."""

    name: str
    path: PayloadPath


@record
class Fixture:
    """Golden inputs and the reference's outputs."""

    name: FixtureName
    origin: Literal["generated", "user"]
    sizes: Annotated[Mapping[str, int], "of the dims"] = field(default_factory=dict)
    inputs: tuple[FixtureTensor, ...]
    outputs: tuple[FixtureTensor, ...]


@record
class ValueShapes:
    """One output: its shape as declared, as shape inference finds it, and as it was produced.

    Sizes, dim names and sums of them such as `past + seq`; `?` where nothing simple fits.
    None: rank unknown, or no tensor.
    """

    name: str
    declared: tuple[int | str, ...] | None = None
    inferred: tuple[int | str, ...] | None = None
    produced: tuple[int | str, ...] | None = None


@record
class Manifest:
    """The whole document."""

    schema: str
    required_features: tuple[str, ...] = ()
    name: Annotated[str, Bounds(1, 255), Pattern(NAME), "of the model; hosts remember it"]
    source: Capture
    profile: Annotated[Json, "the resolved profile, as written in aotc.profile/1"]
    profile_sha256: Sha256
    target: Annotated[str, "name of the target it was built for"]
    target_sha256: Annotated[
        Sha256, "of the target's OS, architecture, libc and ISA, in canonical form"
    ]
    toolchain: Toolchain
    inputs: tuple[Value, ...]
    outputs: Annotated[tuple[Value, ...], Bounds(1)]
    domain: Domain = Domain()
    shapes: Annotated[tuple[ValueShapes, ...], "of the outputs"] = ()
    padding: Padding | None = None
    strict: Annotated[bool, "calls outside of probed ranges are refused as well"] = False
    findings: tuple[Finding, ...] = ()
    variants: Annotated[tuple[Variant, ...], Bounds(1)]
    dropped: Annotated[tuple[DroppedVariant, ...], "by the fallback policy"] = ()
    waivers: tuple[AcceptedWaiver, ...] = ()
    fixtures: tuple[Fixture, ...] = ()
    files: Annotated[tuple[FileEntry, ...], "every payload file but aotc.json, by path"]

    def problems(self) -> list[Problem]:
        """What the types cannot say."""
        found = []
        paths = [entry.path for entry in self.files]
        if paths != sorted(set(paths)):
            found.append(Problem("files", "paths are not sorted and unique"))
        known = set(paths)
        for index, variant in enumerate(self.variants):
            if variant.model not in known:
                found.append(Problem(f"variants[{index}].model", "is not among files"))
            if variant.model not in variant.files or not known.issuperset(variant.files):
                found.append(Problem(f"variants[{index}].files", "do not hold what is read"))
            parts = variant.partitioning.partitions if variant.partitioning is not None else ()
            if any(part.file is not None and part.file not in variant.files for part in parts):
                found.append(Problem(f"variants[{index}].partitioning", "names a file not read"))
        if not isinstance(self.profile, Mapping):
            found.append(Problem("profile", "is no mapping"))
        found += shape_problems(self)
        found += fixture_problems(self)
        for index, entry in enumerate(self.files):
            wanted = -(-entry.size // CHUNK_BYTES) if entry.chunks else 0
            if entry.chunks and len(entry.chunks) != wanted:
                found.append(Problem(f"files[{index}].chunks", f"expected {wanted} digests"))
        return found
