"""What `aotc debug parity` answers: outputs and inner values of a variant against its model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.contract.finding import Finding
from aotc.contract.precision.quality_gates import OutputGate
from aotc.contract.profile_terms import Tolerance
from aotc.contract.results.build_evidence import OutputError
from aotc.contract.results.nodes.node_errors import NodeErrors
from aotc.contract.results.reports import Refusal
from aotc.records import field, record


@record
class FailingSubmodel:
    """The smallest part of a variant that is out of tolerance by itself, fed as in the model.

    With `accumulated` it is a range of nodes, as none of them alone is out of tolerance.
    """

    value: Annotated[str, "value of the model that it makes"]
    nodes: Annotated[tuple[str, ...], "nodes of the model that it stands for, in order"]
    variant_nodes: Annotated[tuple[str, ...], "its nodes, as the variant names them"]
    ops: Annotated[tuple[str, ...], "domain::op_type of its nodes, in order"]
    inputs: Annotated[tuple[str, ...], "values of the model that it is fed"]
    error: OutputError
    accumulated: bool = False
    trials: Annotated[int, "parts that were run in isolation"] = 0
    files: Annotated[tuple[str, ...], "written to the folder of -o"] = ()


@record
class ParityDebugReport:
    """`aotc debug parity --json`: where a variant's values leave its model's; nothing is verified.

    `failed` is empty if all outputs are within the tolerance, and what their gates state, on the
    inputs that were given.
    """

    schema: Literal["aotc.parity-debug/1"] = "aotc.parity-debug/1"
    status: Literal["UNVERIFIED"] = "UNVERIFIED"
    artifact: str
    artifact_id: Annotated[str, "sha256 of aotc.json"]
    model: str
    variant: str
    fixture: Annotated[str, "inputs on which the nodes were compared"]
    compared: Annotated[tuple[str, ...], "all inputs on which the outputs were"] = ()
    tolerance: Tolerance
    gates: Annotated[Mapping[str, OutputGate], "limits that the profile stated, by output"] = field(
        default_factory=dict
    )
    outputs: Annotated[tuple[OutputError, ...], "on `fixture`"]
    errors: NodeErrors
    submodel: FailingSubmodel | None = None
    findings: tuple[Finding, ...] = ()
    failed: tuple[Refusal, ...] = ()
