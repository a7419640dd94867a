"""One runnable form of a model, and all that its artifact promises about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds
from aotc.contract.manifest.divided_graph import Certainty, PartitionReport
from aotc.contract.manifest.graph_capture import GraphCapture
from aotc.contract.manifest.payload_files import (
    PayloadPath,
    PlainName,
)
from aotc.contract.manifest.product_forms import IntegerProducts
from aotc.contract.manifest.requirements import Requirements
from aotc.contract.manifest.toolchain import PassRecord
from aotc.contract.precision.quality_gates import OutputGate, TaskVerdict
from aotc.contract.profile_terms import Arithmetic, Tolerance
from aotc.contract.shapes.domain import Domain
from aotc.records import field, record

Optimization = Literal["disable", "basic", "extended", "layout", "all"]


@record
class SessionSpec:
    """How the runtime creates the session."""

    optimization: Annotated[Optimization, "graph optimization level"]
    config: Annotated[Mapping[str, str], "session config entries"] = field(default_factory=dict)
    provider_options: Annotated[Mapping[str, Mapping[str, str]], "by provider"] = field(
        default_factory=dict
    )
    threads: Annotated[int | None, "for one operator; None: one for each core"] = None


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

    how: Certainty
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
    graphs: Annotated[GraphCapture | None, "captured CUDA graphs; None: no capture"] = None
    integer_products: Annotated[
        IntegerProducts | None, "of a quantized model on an x86-64 CPU alone; None: of others"
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
