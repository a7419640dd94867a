"""What `build`, `verify`, `inspect` and a load report, in Python and with `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from aotc.contract.finding import Finding
from aotc.contract.manifest.divided_graph import Certainty, PartitionReport
from aotc.contract.manifest.interface import Value, ValueShapes
from aotc.contract.manifest.requirements import Requirements
from aotc.contract.manifest.source import Capture
from aotc.contract.manifest.toolchain import PassRecord, Toolchain
from aotc.contract.manifest.variant import MemoryPlan, Parity, TransferTotals
from aotc.contract.profile_terms import Traffic
from aotc.contract.results.build_evidence import (
    OutputError,
    VariantEvidence,
)
from aotc.contract.results.policy_decision import PolicyDecision
from aotc.contract.results.tuning import TuningCandidate
from aotc.contract.shapes.domain import Domain
from aotc.records import field, record

Verdict = Literal["optimal", "degraded", "incompatible"]


Status = Literal["passed", "failed", "not-run"]


@record
class CheckResult:
    """One numbered step of the gate, or one compatibility check."""

    step: str
    status: Status
    detail: str = ""


@record
class Refusal:
    """One reason for a no."""

    WIRE_NAMES: ClassVar = {"fix": "mend"}

    code: str
    what: str
    where: str = ""
    expected: str = ""
    found: str = ""
    fix: str = ""
    rows: Annotated[tuple[Mapping[str, str], ...], "what it is about, by column"] = ()


@record
class VariantVerdict:
    """Whether one variant runs on the host, and why not."""

    name: str
    runs: bool
    reasons: tuple[Refusal, ...] = ()


@record
class VerifyReport:
    """`aotc verify --json`."""

    schema: Literal["aotc.verify/1"] = "aotc.verify/1"
    artifact: str
    artifact_id: Annotated[str, "sha256 of aotc.json; empty where it was not read"] = ""
    authentic: bool
    verdict: Verdict | Literal["unverified"]
    signers: Annotated[tuple[str, ...], "key ids (sha256 of the SPKI PEM) that verified"] = ()
    signer_names: Annotated[
        tuple[str, ...],
        "of each signer, its id in the policy and what its certificate names; empty: neither",
    ] = ()
    development_key: bool = False
    target: str
    steps: tuple[CheckResult, ...]
    refusals: tuple[Refusal, ...] = ()
    findings: tuple[Finding, ...] = ()
    variants: tuple[VariantVerdict, ...] = ()
    policy: Annotated[PolicyDecision | None, "what a trust policy decided; None: there is none"] = (
        None
    )
    bytes_hashed: int = 0
    seconds: float = 0.0


@record
class BuildReport:
    """`aotc build --json`: what was built, and how it was proven."""

    schema: Literal["aotc.build/1"] = "aotc.build/1"
    artifact: Annotated[str, "path of the folder that was written"]
    artifact_id: Annotated[str, "sha256 of aotc.json"]
    payload_bytes: int
    key_id: str
    development_key: bool
    variants: tuple[VariantEvidence, ...]
    tuning: Annotated[tuple[TuningCandidate, ...], "what --tune tried"] = ()
    cached: Annotated[bool, "taken from the build cache: nothing was compiled"] = False
    findings: tuple[Finding, ...] = ()
    stages: Annotated[Mapping[str, float], "seconds by stage"]
    seconds: float


@record
class VariantLoad:
    """What loading one variant cost, in seconds."""

    name: str
    session_seconds: float
    warmup_seconds: Annotated[float, "placement, and what was run; 0 where nothing was"] = 0.0
    first_run_seconds: Annotated[float | None, "of the warm-up; None where nothing was run"] = None
    warmed: bool = False
    accepted: Annotated[int, "fixtures that ran and matched, padded where they had to be"] = 0


@record
class LoadReport:
    """What one load cost, in seconds, and what was loaded."""

    schema: Literal["aotc.load/1"] = "aotc.load/1"
    artifact_id: str
    variant: str
    verdict: Verdict
    from_store: Annotated[bool, "the store already held it"]
    hashed: Annotated[bool, "digests were checked now; else at install alone"] = True
    verify_seconds: Annotated[float, "signature, digests, and the copy where there was one"]
    session_seconds: float
    warmup_seconds: Annotated[float, "placement, and all fixtures run and compared"]
    first_request_seconds: Annotated[float | None, "first model.run; None before it"] = None
    fixtures: Annotated[int, "fixtures that ran and matched"] = 0
    variants: Annotated[tuple[VariantLoad, ...], "each that was loaded"] = ()
    findings: tuple[Finding, ...] = ()


@record
class Claim:
    """What one attestation says of itself. Nobody vouches for it here."""

    path: Annotated[str, "file in the artifact"]
    key_id: Annotated[str, "key that it names; empty where it names none"] = ""
    development_key: Annotated[bool, "it names this user's development key"] = False
    predicate_type: str = ""
    says: Annotated[str, "in words; empty where it is of no known type"] = ""


@record
class VariantSummary:
    """One variant, as the manifest describes it and the evidence measured it."""

    name: str
    component: str
    buckets: Annotated[Mapping[str, int], "that it is for; none: it takes all sizes"] = field(
        default_factory=dict
    )
    shape_nodes: int = 0
    shape_nodes_dropped: int = 0
    providers: tuple[str, ...]
    device: str
    precision: str
    optimization: str
    requirements: Requirements
    placement: Annotated[Certainty, "how it is known"]
    nodes: int
    partitions: int
    share: Annotated[Mapping[str, float], "of nodes, by provider"]
    partitioning: Annotated[PartitionReport | None, "None where one provider takes all"] = None
    transfers: TransferTotals = TransferTotals()
    parity: Parity
    worst: Annotated[tuple[OutputError, ...], "largest error of each output, all shapes"] = ()
    memory: MemoryPlan
    passes: tuple[PassRecord, ...] = ()
    load_seconds: float | None = None
    run_seconds: Annotated[Mapping[str, float], "median, by fixture"] = field(default_factory=dict)
    peak_memory_bytes: int | None = None


@record
class DimCoverage:
    """How much of one dim's domain was compared with the original model at build."""

    dim: str
    sizes: Annotated[str, "that callers may pass, in words"]
    compared: Annotated[tuple[int, ...], "sizes in comparisons of any variant"]
    share: Annotated[float, "of all sizes that callers may pass"]
    gap: Annotated[
        tuple[int, int] | None, "widest span between two compared sizes; None where none is left"
    ] = None


@record
class TrafficCoverage:
    """What an artifact does with recorded requests."""

    path: str
    sha256: Annotated[str, "of the file"]
    requests: int
    accepted: Annotated[float, "share of requests"]
    exact: Annotated[float, "share that runs at its own sizes on a variant for just those"]
    padded: float
    routed: Annotated[float, "share that runs at its own sizes on the dynamic variant"]
    compared: Annotated[float, "share whose sizes were compared with the original at build"]
    padding: Annotated[float, "elements added, for each element of accepted requests"]
    variants: Annotated[Mapping[str, int], "requests by variant, of the profile's first"]
    refused: Annotated[Mapping[str, int], "requests by the sizes that are refused, most first"] = (
        field(default_factory=dict)
    )


@record
class ShapeReport:
    """Shapes of outputs, and how much of the profile's shapes was seen to work."""

    outputs: tuple[ValueShapes, ...]
    dims: tuple[DimCoverage, ...] = ()
    learned: Annotated[Traffic | None, "what the profile was learned from"] = None
    traffic: Annotated[TrafficCoverage | None, "of the file that was given"] = None


@record
class ArtifactSummary:
    """What an artifact says of itself beyond its model."""

    artifact_id: Annotated[str, "sha256 of aotc.json"]
    profile: str
    target: str
    toolchain: Toolchain
    claims: Annotated[tuple[Claim, ...], "attestations, unverified"] = ()
    variants: tuple[VariantSummary, ...]
    sizes: Annotated[Mapping[str, int], "bytes by role of file, as listed"]
    payload_bytes: int
    files: int
    fixtures: int
    shapes: ShapeReport | None = None
    built_at: Annotated[str, "UTC, ISO 8601; empty where no evidence says"] = ""
    tuning: Annotated[tuple[TuningCandidate, ...], "what --tune tried"] = ()


@record
class InspectReport:
    """`aotc inspect --json`: what an artifact or a model says of itself, vouched for by nobody."""

    schema: Literal["aotc.inspect/1"] = "aotc.inspect/1"
    status: Literal["UNVERIFIED"] = "UNVERIFIED"
    kind: Literal["artifact", "model"]
    path: str
    name: str
    source: Annotated[Capture, "the model, or the model that an artifact was built from"]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    domain: Annotated[Domain | None, "proven shapes; None for a model"] = None
    strict: bool = False
    artifact: Annotated[ArtifactSummary | None, "None for a model"] = None
    findings: tuple[Finding, ...] = ()
    problems: Annotated[tuple[Refusal, ...], "what could not be read"] = ()
