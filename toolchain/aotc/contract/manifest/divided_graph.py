"""How a variant's graph is divided among execution providers, as the manifest records it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from aotc.contract.manifest.payload_files import PayloadPath
from aotc.records import record

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

    WIRE_NAMES: ClassVar = {"subgraph": "body"}

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

    WIRE_NAMES: ClassVar = {"transfers": "crossings"}

    how: Certainty
    providers: tuple[ProviderShare, ...]
    partitions: tuple[Partition, ...]
    alternations: Annotated[int, "changes of provider along the main graph's order of execution"]
    transfers: tuple[Transfer, ...] = ()
    refusals: tuple[RefusedNode, ...] = ()
