"""What `build`, `verify`, `inspect`, `load` and `debug parity` answer, in Python and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from aotc.base.errors import Place
from aotc.base.records import field, record
from aotc.spec.attestation_kinds import Usage
from aotc.spec.evidence import (
    AgainstKeep,
    FormTiming,
    NodeErrors,
    ObservedMemory,
    OutputError,
    Repeats,
    RunSpread,
    TaskResult,
    TuningCandidate,
    VariantEvidence,
)
from aotc.spec.manifest import Capture, ControlPath, Randomness
from aotc.spec.memory import PlannedMemory
from aotc.spec.payload import Finding, Value, ValueShapes
from aotc.spec.precision import OutputGate, Tolerance, Traffic
from aotc.spec.shapes import Domain
from aotc.spec.variant import (
    Certainty,
    ComputedProducts,
    GraphCapture,
    IntegerProducts,
    MemoryPlan,
    Parity,
    PartitionReport,
    PassRecord,
    Requirements,
    Toolchain,
    TransferTotals,
)

Verdict = Literal["optimal", "degraded", "incompatible"]
Status = Literal["passed", "failed", "not-run"]
# The target of a verification that asks for authenticity alone.
NO_TARGET: Final = "none"


@record
class CheckResult:
    """The result of one step of the gate, or of one compatibility check."""

    step: str
    status: Status
    detail: str = ""


@record
class Refusal:
    """One reason for a refusal."""

    code: str
    what: str
    where: str = ""
    expected: str = ""
    found: str = ""
    fix: str = ""
    rows: Annotated[tuple[Mapping[str, str], ...], "table of details: cells by column"] = ()
    place: Annotated[
        Place | None, "where a file is wrong, or states what was not met; None: in no such file"
    ] = None


@record
class VariantVerdict:
    """Whether one variant runs on the host, and the reasons if not."""

    name: str
    runs: bool
    reasons: tuple[Refusal, ...] = ()
    unproven: Annotated[
        str, "why its answers were not compared as this target gives them; empty: they were"
    ] = ""


@record
class VerifyReport:
    """`aotc verify --json`."""

    schema: Literal["aotc.verify/1"] = "aotc.verify/1"
    artifact: str
    artifact_id: Annotated[str, "sha256 of aotc.json; empty if it was not read"] = ""
    origin: Annotated[str, "HOST/REPOSITORY@DIGEST that was verified; empty: not in a registry"] = (
        ""
    )
    authentic: bool
    verdict: Annotated[
        Verdict | Literal["authentic", "unverified"],
        "authentic: it is, and whether it runs on a host was not asked (target none)",
    ]
    signers: Annotated[
        tuple[str, ...], "ids (sha256 of the SPKI PEM) of keys whose signatures verified"
    ] = ()
    signer_names: Annotated[
        tuple[str, ...],
        "each signer's id in the policy, and names in its certificate; empty: neither",
    ] = ()
    development_key: bool = False
    target: Annotated[str, "host that the variants were judged for; none: host was not asked"]
    steps: tuple[CheckResult, ...]
    refusals: tuple[Refusal, ...] = ()
    findings: tuple[Finding, ...] = ()
    variants: tuple[VariantVerdict, ...] = ()
    best: Annotated[str, "variant that this target would run; empty: none"] = ""
    policy: Annotated[
        PolicyDecision | None, "decision of the trust policy; None: there is no policy"
    ] = None
    hashed_bytes: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether what was asked is so: it is authentic and, if a target was, it runs there.

        Who must know that it runs also compares `target`: with `none` nothing is said of that.
        """
        if self.target == NO_TARGET:
            return self.authentic
        return self.authentic and self.verdict in ("optimal", "degraded")


# Why an artifact is refused, in a few words, by the codes of its refusals: the first that applies.
# Whoever signed it comes first, as without a trusted signature it is not known what was signed.
_BY_SIGNATURE: Final = (
    ("AOTC-G003", "changed since it was signed"),
    ("AOTC-G005", "changed since it was signed"),
    ("AOTC-G001", "not signed"),
    ("AOTC-G004", "its signature is malformed"),
    ("AOTC-G028", "signed with a key that is revoked, or not valid now"),
    ("AOTC-G037", "signed with a certificate that is not valid now, or not for this"),
    ("AOTC-G027", "signed with a key that may not sign it"),
    ("AOTC-G002", "signed by nobody you trust"),
    ("AOTC-G038", "signed by nobody you trust"),
)
_BY_CONTENT: Final = (
    ("AOTC-G003", "changed since it was signed"),
    ("AOTC-G005", "changed since it was signed"),
    ("AOTC-G006", "changed since it was signed"),
    ("AOTC-G007", "changed since it was signed"),
    ("AOTC-G008", "changed since it was signed"),
    ("AOTC-G010", "made by a newer aotc"),
    ("AOTC-G011", "made by a newer aotc"),
    ("AOTC-G029", "revoked by the trust policy"),
    ("AOTC-G030", "older than the trust policy or this host takes"),
)
_BY_POLICY: Final = frozenset(
    f"AOTC-G0{number}" for number in (23, 24, 25, 26, 27, 28, 31, 32, 33, 34, 49)
)


def refused_because(report: VerifyReport) -> str:
    """Why the artifact of a report is not authentic, in a few words for its headline."""
    codes = {refusal.code for refusal in report.refusals}
    if "AOTC-G015" in codes or "AOTC-G039" in codes:
        return "not an artifact"
    for code, text in _BY_CONTENT if report.signers else _BY_SIGNATURE:
        if code in codes:
            return text
    return "the trust policy does not accept it" if codes & _BY_POLICY else "not vouched for"


@record
class BuildReport:
    """`aotc build --json`: the artifact that was built, and its measurements."""

    schema: Literal["aotc.build/1"] = "aotc.build/1"
    artifact: Annotated[str, "path of the folder that was written"]
    artifact_id: Annotated[str, "sha256 of aotc.json"]
    payload_bytes: int
    key_id: Annotated[str, "of the signing key; that of a keyless signature is not used again"]
    identity: Annotated[str, "of a keyless signature, and its issuer; empty for a key"] = ""
    development_key: bool
    variants: tuple[VariantEvidence, ...]
    tuning: Annotated[tuple[TuningCandidate, ...], "candidates that were tried"] = ()
    cached: Annotated[bool, "taken from the build cache; nothing was compiled"] = False
    findings: tuple[Finding, ...] = ()
    against: Annotated[str, "artifact that the answers were compared with; empty: none"] = ""
    stages: Annotated[Mapping[str, float], "seconds by stage"]
    seconds: float


@record
class CapturedGraphs:
    """Sizes whose calls replay a CUDA graph, at one moment."""

    captured: tuple[Mapping[str, int], ...] = ()
    waiting: Annotated[
        tuple[Mapping[str, int], ...],
        "captured behind the load, and run without a graph until then",
    ] = ()
    refused: Annotated[
        tuple[Mapping[str, int], ...], "run without a graph, or not at all: the findings say why"
    ] = ()


@record
class VariantLoad:
    """The time for loading one variant, in seconds."""

    name: str
    session_seconds: float
    warmup_seconds: Annotated[float, "placement check and warm-up runs; 0 without them"] = 0.0
    first_run_seconds: Annotated[float | None, "first run of the warm-up; None without one"] = None
    warmed: bool = False
    fixtures: Annotated[int, "number of fixtures that matched, padded if necessary"] = 0
    fixtures_before: Annotated[int, "of these, those that ran at an earlier load alone"] = 0
    nodes: Annotated[Mapping[str, int], "nodes by provider, as observed"] = field(
        default_factory=dict
    )
    misplaced_nodes: Annotated[int, "of these, those not where the artifact promises"] = 0
    captures: Annotated[
        CapturedGraphs | None, "sizes that are captured as CUDA graphs; None: none is promised"
    ] = None


@record
class LoadReport:
    """What was loaded, and the time for it in seconds."""

    schema: Literal["aotc.load/1"] = "aotc.load/1"
    artifact_id: str
    variant: str
    verdict: Verdict
    from_store: Annotated[bool, "the store had it already"]
    hashed: Annotated[bool, "digests were checked now; false: only when it was installed"] = True
    verify_seconds: Annotated[float, "signature, digests, and the copy into the store, if any"]
    session_seconds: float
    warmup_seconds: Annotated[float, "placement check, and running and comparing fixtures"]
    first_call_seconds: Annotated[float | None, "first call of model.run; None before it"] = None
    fixtures: Annotated[int, "number of fixtures that matched on this host"] = 0
    fixtures_before: Annotated[int, "of these, those that ran at an earlier load alone"] = 0
    device_bytes: Annotated[
        int | None,
        "device memory that the load took until it was ready, by what was free before; None: no "
        "session on CUDA",
    ] = None
    variants: Annotated[tuple[VariantLoad, ...], "variants that were loaded"] = ()
    findings: tuple[Finding, ...] = ()


@record
class Claim:
    """What an attestation states about itself, not verified."""

    path: Annotated[str, "file in the artifact"]
    key_id: Annotated[str, "key that it names; empty if it names none"] = ""
    development_key: Annotated[bool, "it names this user's development key"] = False
    predicate_type: str = ""
    summary: Annotated[str, "summary of the predicate; empty if its type is unknown"] = ""


@record
class LimitSummary:
    """One limit that the profile states for an output, with the worst that was measured."""

    output: str
    limit: str
    measured: Annotated[str, "in words; empty: there is no evidence"] = ""
    passed: bool = True


@record
class VariantSummary:
    """One variant, by its manifest and its evidence."""

    name: str
    component: str
    buckets: Annotated[Mapping[str, int], "its bucket of each dim; empty: it takes all sizes"] = (
        field(default_factory=dict)
    )
    cuda_graphs: Annotated[
        GraphCapture | None, "sizes captured as CUDA graphs; None: no capture"
    ] = None
    integer_products: Annotated[
        IntegerProducts | None, "of a quantized model on an x86-64 CPU alone; None: of others"
    ] = None
    computed_products: Annotated[
        ComputedProducts | None,
        "of a quantized variant on the CPU provider alone, as its loaded graph computes them",
    ] = None
    shape_nodes: int = 0
    shape_nodes_dropped: int = 0
    providers: tuple[str, ...]
    device: str
    precision: str
    optimization: str
    provider_options: Annotated[
        Mapping[str, Mapping[str, str]], "what sessions state of each provider"
    ] = field(default_factory=dict)
    requirements: Requirements
    placement_origin: Annotated[Certainty, "how the placement is known"]
    nodes: int
    partitions: int
    share: Annotated[Mapping[str, float], "of nodes, by provider"]
    partitioning: Annotated[PartitionReport | None, "None if one provider runs all nodes"] = None
    transfers: TransferTotals = TransferTotals()
    parity: Parity
    worst: Annotated[tuple[OutputError, ...], "largest error of each output over all shapes"] = ()
    limits: Annotated[tuple[LimitSummary, ...], "gates of outputs"] = ()
    task: Annotated[TaskResult | None, "on the user's labelled set"] = None
    memory: MemoryPlan
    passes: tuple[PassRecord, ...] = ()
    load_seconds: float | None = None
    run_seconds: Annotated[Mapping[str, float], "median of warm calls, by timed fixture"] = field(
        default_factory=dict
    )
    run_spread: Annotated[Mapping[str, RunSpread], "of the same calls"] = field(
        default_factory=dict
    )
    peak_memory_bytes: int | None = None
    device_bytes: Annotated[
        int | None, "device memory of its session after it ran, at build; None: not on a GPU"
    ] = None
    plain_device_bytes: Annotated[
        int | None, "of a plain session of the user's model after its first run"
    ] = None
    observed: Annotated[ObservedMemory | None, "memory as observed at build; None: it was not"] = (
        None
    )
    planned: Annotated[PlannedMemory | None, "its memory plan; None: there is none"] = None
    timed_against: Annotated[FormTiming | None, "its portable form; None: not timed"] = None
    against_keep: Annotated[AgainstKeep | None, "beside the same variant in keep"] = None
    repeats: Annotated[Repeats | None, "equal calls whose answers were compared"] = None


@record
class DimCoverage:
    """How much of one dim's range was compared with the original model at build time."""

    dim: str
    sizes: Annotated[str, "sizes that callers may pass, such as 1..8"]
    compared: Annotated[tuple[int, ...], "sizes that were compared for any variant"]
    share: Annotated[float, "compared share of the sizes that callers may pass"]
    gap: Annotated[
        tuple[int, int] | None, "widest gap between two compared sizes; None: there is no gap"
    ] = None


@record
class TrafficCoverage:
    """How an artifact would run recorded requests."""

    path: str
    sha256: Annotated[str, "of the file"]
    requests: int
    accepted: Annotated[float, "share of requests"]
    exact: Annotated[float, "share that runs unpadded on a variant for exactly these sizes"]
    padded: float
    routed: Annotated[float, "share that runs unpadded on the dynamic variant"]
    compared: Annotated[
        float, "share whose sizes were compared with the original model at build time"
    ]
    padding: Annotated[float, "elements added, for each element of accepted requests"]
    variants: Annotated[Mapping[str, int], "requests by variant, for the profile's first variant"]
    refused: Annotated[Mapping[str, int], "number of requests by refused sizes, largest first"] = (
        field(default_factory=dict)
    )


@record
class ShapeReport:
    """Shapes of outputs, and how much of the accepted shapes was compared."""

    outputs: tuple[ValueShapes, ...]
    dims: tuple[DimCoverage, ...] = ()
    learned: Annotated[Traffic | None, "requests that the profile was learned from"] = None
    traffic: Annotated[TrafficCoverage | None, "coverage of the given traffic file"] = None


@record
class ArtifactSummary:
    """What an artifact states about itself, in addition to its model; not verified."""

    artifact_id: Annotated[str, "sha256 of aotc.json"]
    profile: str
    target: str
    toolchain: Toolchain
    claims: Annotated[tuple[Claim, ...], "attestations, unverified"] = ()
    variants: tuple[VariantSummary, ...]
    bytes_by_role: Annotated[Mapping[str, int], "bytes by role of file, as the manifest lists them"]
    payload_bytes: int
    files: int
    fixtures: int
    shapes: ShapeReport | None = None
    built_at: Annotated[str, "UTC, ISO 8601; empty without evidence"] = ""
    tuning: Annotated[tuple[TuningCandidate, ...], "candidates that were tried"] = ()
    branches: Annotated[
        tuple[ControlPath, ...], "what of the model's control flow the proof's fixtures ran"
    ] = ()
    random: Annotated[Randomness | None, "unset: the model draws no random numbers"] = None
    exported: Annotated[
        tuple[OutputError, ...],
        "of a model that a framework's exporter made, worst beside the framework's answers",
    ] = ()
    merged: Annotated[
        tuple[ProvenWhere, ...], "of a merged artifact: where its variants were proven"
    ] = ()


@record
class ProvenWhere:
    """One of the artifacts that were merged, and the host where it was proven."""

    artifact_id: str
    host: Annotated[Mapping[str, str], "OS, architecture, CPU features; no names"]
    target: str
    onnxruntime: str
    built_at: Annotated[str, "UTC, ISO 8601"]
    variants: Annotated[Mapping[str, str], "what it calls each variant, by the name here"]


@record
class InspectReport:
    """`aotc inspect --json`: what an artifact or a model states about itself, not verified."""

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
    node_errors: Annotated[
        Mapping[str, NodeErrors], "by variant; measured on request, with the model"
    ] = field(default_factory=dict)


ChannelSource = Literal["", "argument", "approval"]


@record
class RuleMatch:
    """Whether a rule matches the artifact's name and channel."""

    rule: str
    name: Annotated[str, "pattern"]
    channel: Annotated[str, "pattern"]
    matches: bool


@record
class ConsideredAttestation:
    """An attestation that was considered for a requirement, and whether it counts."""

    path: str
    key_id: Annotated[str, "key id: sha256 of the public key's PEM"]
    id: Annotated[str, "id of the key or authority in the policy"]
    counts: bool
    code: Annotated[str, "reason why it does not count; empty if it counts"] = ""
    reason: str = ""


@record
class RequirementResult:
    """The result of one requirement of the rule that applies."""

    predicate: Usage
    signers: tuple[str, ...]
    threshold: int
    distinct: Annotated[int, "number of distinct signers that count"]
    met: bool
    considered: tuple[ConsideredAttestation, ...] = ()


@record
class ArtifactRelease:
    """A release of an artifact: its version, or the time of its approval or build."""

    kind: Literal["version", "approved", "built"]
    value: str
    made_at: Annotated[
        str, "of a version: when it was approved or built, as attested; empty: not known"
    ] = ""


@record
class PolicyDecision:
    """The decision of a policy, with the rule that applies and its requirements."""

    policy: str
    sequence: int
    sha256: Annotated[str, "of the policy file"]
    expires: str
    roots: Annotated[tuple[str, ...], "key ids of the roots that signed it; empty: unsigned"] = ()
    artifact: Annotated[str, "name of the artifact"] = ""
    channel: str = ""
    channel_source: ChannelSource = ""
    accepted: bool = False
    rule: Annotated[str, "name of the rule that matches; empty: none or several match"] = ""
    rules: tuple[RuleMatch, ...] = ()
    requirements: tuple[RequirementResult, ...] = ()
    repository: Annotated[
        str, "HOST/REPOSITORY that the artifact comes from; empty: not from a registry"
    ] = ""
    repositories: Annotated[tuple[str, ...], "patterns of the rule; empty: any repository"] = ()
    qualified: Annotated[
        tuple[str, ...] | None, "variants that may be loaded here, if a rule requires it; None: all"
    ] = None
    release: ArtifactRelease | None = None
    highest_release: Annotated[
        ArtifactRelease | None, "highest release seen on this host before"
    ] = None


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

    schema: Literal["aotc.debug-parity/1"] = "aotc.debug-parity/1"
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
    exported: Annotated[
        NodeErrors | None,
        "of the exported model beside the framework that it is from; unset: it was not captured",
    ] = None
    submodel: FailingSubmodel | None = None
    findings: tuple[Finding, ...] = ()
    failed: tuple[Refusal, ...] = ()
