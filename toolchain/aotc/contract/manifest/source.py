"""The source model that was imported, as the manifest describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from aotc.contract.finding import Finding
from aotc.contract.manifest.payload_files import (
    Sha256,
)
from aotc.records import field, record


@record
class ExternalFile:
    """A file of external data of the source model."""

    location: str
    size: int
    sha256: Sha256


@record
class ControlFlow:
    """One control flow node, and its subgraphs with their node counts."""

    WIRE_NAMES: ClassVar = {"subgraphs": "bodies"}

    node: str
    op_type: str
    subgraphs: Annotated[Mapping[str, int], "number of nodes, by attribute"]


@record
class Capture:
    """Description of the model that was imported."""

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
    nodes_total: Annotated[int, "including subgraphs and functions"]
    op_types: Annotated[Mapping[str, int], "nodes by domain::op_type, including subgraphs"]
    initializers: int
    initializer_bytes: int
    constants: Annotated[int, "Constant nodes"] = 0
    functions: Annotated[tuple[str, ...], "domain::name of model-local functions"] = ()
    custom_ops: Annotated[
        tuple[str, ...], "domain::op_type of domains other than ONNX's and ORT's"
    ] = ()
    contrib_ops: Annotated[tuple[str, ...], "domain::op_type of ORT's own domains"] = ()
    control_flow: tuple[ControlFlow, ...] = ()
    side_inputs: Annotated[tuple[str, ...], "outer values that subgraphs read, as node: value"] = ()
    external_data: tuple[ExternalFile, ...] = ()
    quantized: Annotated[bool, "has quantized operators"] = False
    half: Annotated[bool, "has float16 or bfloat16 tensors"] = False
    metadata: Annotated[
        Mapping[str, int], "removed from the graphs: bytes of doc_string and metadata_props"
    ] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
