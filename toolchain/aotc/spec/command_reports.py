"""What the smaller commands answer with `--json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from aotc.base.records import field, record
from aotc.spec.answers import AnswersCheck, ModelAnswers, ToolVersions
from aotc.spec.codec import Bounds, Json, Pattern, Problem
from aotc.spec.payload import CHUNK_BYTES, Finding, PayloadPath, Sha256
from aotc.spec.profile import Profile
from aotc.spec.reports import LoadReport, Refusal
from aotc.spec.target import Target
from aotc.spec.variant import Requirements, SessionSpec

Kind = Annotated[str, Pattern(r"[a-z][a-z0-9-]{0,31}")]


@record
class CachedFile:
    """A file of an entry; if it has one chunk, the chunk's digest is the file's."""

    path: PayloadPath
    size: Annotated[int, Bounds(0)]
    chunks: Annotated[tuple[Sha256, ...], "sha256 of each 16 MiB; the last chunk may be shorter"]

    def problems(self) -> Iterator[Problem]:
        """Rules that the types do not express: the digests cover the file."""
        if len(self.chunks) != chunk_count(self.size):
            yield Problem("chunks", f"{len(self.chunks)} digests for {self.size} bytes")


@record
class CacheIndex:
    """The content of an entry of the build cache: its `index.json`, as canonical JSON."""

    schema: Literal["aotc.cache-index/1"] = "aotc.cache-index/1"
    key: Sha256
    kind: Kind
    document: Json
    files: tuple[CachedFile, ...]

    def problems(self) -> Iterator[Problem]:
        """Rules that the types do not express: each path is listed once."""
        if len({file.path for file in self.files}) != len(self.files):
            yield Problem("files", "a path is listed twice")


def chunk_count(size: int) -> int:
    """The number of chunks with a digest in a file of `size` bytes; at least 1."""
    return max(1, -(-size // CHUNK_BYTES))


@record
class CacheEntry:
    """One entry of the build cache."""

    key: str
    kind: Annotated[str, "damaged: its index cannot be read"]
    bytes: Annotated[int, "on disk, its index included"]
    created_at: Annotated[str, "UTC, ISO 8601"]
    used_at: Annotated[str, "when it was stored or last used; UTC, ISO 8601"]
    files: int
    title: Annotated[str, "what it was made for, if known"] = ""


@record
class CacheListReport:
    """`aotc cache list --json`: the entry that was used last comes first."""

    schema: Literal["aotc.cache-list/1"] = "aotc.cache-list/1"
    folder: str
    limit_bytes: int
    bytes: int
    entries: tuple[CacheEntry, ...]


@record
class PruneReport:
    """`aotc cache prune --json`, `aotc cache clear --json`: what was removed and what remains."""

    schema: Literal["aotc.cache-prune/1"] = "aotc.cache-prune/1"
    folder: str
    removed: Annotated[int, "entries"] = 0
    removed_bytes: int = 0
    leftovers: Annotated[int, "incomplete folders of builds that were killed"] = 0
    kept: Annotated[int, "entries"] = 0
    kept_bytes: int = 0


FileAction = Literal["written", "replaced", "extended", "kept"]


@record
class InitFile:
    """One file, and what happened to it."""

    path: str
    action: Annotated[
        FileAction,
        "kept: it was there; replaced: a file of aotc's own, with --force; extended: at its end",
    ]


@record
class InitReport:
    """`aotc init --json`: the profile and the CI job that were written for a model."""

    schema: Literal["aotc.init/1"] = "aotc.init/1"
    model: Annotated[str, "path of the model, in the folder of the project"]
    profile: Annotated[str, "path of the profile"]
    ci: Annotated[str, "system whose job was written; none: no job"]
    repository: Annotated[
        str, "top of the git repository, which has the files of the CI; empty: the folder does"
    ] = ""
    dims: Annotated[Mapping[str, tuple[str, ...]], "positions of the free dims, by their names"]
    files: tuple[InitFile, ...]
    to_add: Annotated[
        Mapping[str, str], "what a file of the user's, which was kept, needs for the job, by path"
    ] = field(default_factory=dict)
    of_others: Annotated[
        tuple[str, ...], "files of the CI that were kept, and do not name this model"
    ] = ()


Built = Literal["built", "refused", "crashed", "timeout", "out-of-memory", "bug"]
Answers = Literal["", "as-expected", "as-onnxruntime", "refused", "differ"]


@record
class ModelCheck:
    """The outcome of one model."""

    model: Annotated[str, "path in the folder; NAME for NAME/model.onnx"]
    outcome: Annotated[
        Built,
        "crashed, timeout, out-of-memory: a step in the sandbox; bug: an error of aotc itself",
    ]
    code: Annotated[
        str, "reason why it was not built, or why the artifact refused the test data"
    ] = ""
    answers: Annotated[
        Answers,
        "for the model's test data: as in the data; or else as ONNX Runtime computes them without "
        "optimization; refused by the artifact; neither; empty: not compared",
    ] = ""
    verdict: Annotated[
        Literal["", "optimal", "degraded", "incompatible"], "on this host; empty: not built"
    ] = ""
    what: Annotated[str, "the refusal, or the answer that differs, in words"] = ""
    where: str = ""
    expected: str = ""
    found: str = ""
    other_refusals: Annotated[tuple[Refusal, ...], "further gates that the build failed"] = ()
    findings: Annotated[tuple[str, ...], "codes of findings, without repetition"] = ()
    compared: Annotated[int, "number of test data sets that were run"] = 0
    original: Annotated[
        ModelAnswers | None,
        "what the original model answers, to compare a later runtime with; null: it was not built",
    ] = None
    seconds: Annotated[float, "of the build and the comparison"] = 0.0


@record
class SkippedFile:
    """A file that looks like a model but is not one."""

    path: str
    reason: str


@record
class OutcomeChange:
    """The outcomes of one model, before and now, such as `refused AOTC-S001`."""

    model: str
    before: str
    now: str


@record
class EarlierChecks:
    """What changed since an earlier report.

    Outcomes from best to worst: built, as expected; built, as onnxruntime; built, not compared;
    built, but the artifact refuses the data; refused; timeout or out-of-memory; crashed; built, but
    the answers differ; bug.
    """

    path: str
    versions: ToolVersions = ToolVersions()
    worse: tuple[OutcomeChange, ...] = ()
    better: tuple[OutcomeChange, ...] = ()
    changed: Annotated[tuple[OutcomeChange, ...], "neither worse nor better: another code"] = ()
    added: Annotated[tuple[str, ...], "models that the earlier report does not have"] = ()
    removed: Annotated[tuple[str, ...], "models that only the earlier report has"] = ()


@record
class CheckModelsReport:
    """`aotc check-models --json`: the outcome of every model in a folder."""

    schema: Literal["aotc.check-models/1"] = "aotc.check-models/1"
    folder: str
    profile: str = "edge"
    fixtures: Annotated[bool, "whether the builds got the test data"] = False
    versions: ToolVersions = ToolVersions()
    host: Annotated[Mapping[str, str], "OS, architecture, CPU features; no names"] = field(
        default_factory=dict
    )
    summary: Annotated[Mapping[str, int], "number of models by outcome, largest first"] = field(
        default_factory=dict
    )
    models: tuple[ModelCheck, ...]
    skipped: tuple[SkippedFile, ...] = ()
    unchecked: Annotated[tuple[str, ...], "models not checked because of an interrupt"] = ()
    against: Annotated[EarlierChecks | None, "None: not compared"] = None
    answers: Annotated[AnswersCheck, "of the original models, now and earlier"] = AnswersCheck()
    seconds: float = 0.0


@record
class GpuState:
    """One NVIDIA GPU that a process of CUDA sees."""

    index: Annotated[
        int,
        "CUDA's, if all GPUs are alike or CUDA_DEVICE_ORDER is PCI_BUS_ID; the driver's where "
        "CUDA_VISIBLE_DEVICES has UUIDs",
    ]
    name: str
    compute_capability: str
    memory_bytes: int | None = None
    free_bytes: Annotated[int | None, "not used by any process, at this moment"] = None


@record
class TorchCudnn:
    """The cuDNN that an installed torch asks for; read from its metadata, never imported."""

    torch: Annotated[str, "version of torch"]
    distribution: Annotated[str, "distribution of cuDNN that it requires"]
    version: Annotated[str, 'the one version that it requires; "" for any']
    loaded: Annotated[bool, "torch is imported in this process"] = False


@record
class NvidiaState:
    """GPUs, driver and libraries; None or empty where there is none."""

    gpus: tuple[GpuState, ...] = ()
    driver: str | None = None
    cuda: Annotated[str | None, "newest CUDA that the driver supports, as 13.0"] = None
    cudnn: Annotated[str | None, "version, as the library itself says"] = None
    cudnn_file: Annotated[str, "the library that a session would load"] = ""
    cudnn_packages: Annotated[tuple[str, ...], "installed distributions, as NAME==VERSION"] = ()
    missing_libraries: Annotated[tuple[str, ...], "of CUDA and cuDNN, that a session needs"] = ()
    torch: TorchCudnn | None = None


@record
class ErrorReport:
    """What a command prints instead of its own document when it fails."""

    schema: Literal["aotc.error/1"] = "aotc.error/1"
    exit_status: int
    errors: Annotated[tuple[Refusal, ...], "all reasons, the main one first"]


@record
class RunOutput:
    """One output of one run."""

    name: str
    value: Annotated[str, "type and shape, such as float32[1, 3]"]
    minimum: float | None = None
    mean: float | None = None
    maximum: float | None = None
    file: Annotated[str, "file that it was written to; empty if it was not"] = ""


Cause = Literal["exact", "padded", "routed", "outside"]


@record
class CallRoute:
    """The variant that runs a call, and why."""

    variant: str
    cause: Annotated[
        Cause,
        "outside: a dim is outside the proven range, and the call runs nevertheless",
    ]
    sizes: Annotated[Mapping[str, int], "of the dims"] = field(default_factory=dict)
    padded_to: Annotated[Mapping[str, int], "sizes that run; empty: the call's own"] = field(
        default_factory=dict
    )


@record
class RunCase:
    """One run, of given inputs or of a fixture."""

    name: str
    route: CallRoute | None = None
    outputs: tuple[RunOutput, ...]
    seconds: float


@record
class RunReport:
    """`aotc run --json`."""

    schema: Literal["aotc.run/1"] = "aotc.run/1"
    artifact: str
    load: LoadReport
    runs: tuple[RunCase, ...]
    findings: tuple[Finding, ...] = ()


@record
class KeygenReport:
    """`aotc keygen --json`."""

    schema: Literal["aotc.keygen/1"] = "aotc.keygen/1"
    private_key: Annotated[str, "path; mode 0600"]
    public_key: Annotated[str, "path"]
    key_id: Annotated[str, "sha256 of the public key's SPKI PEM"]


@record
class VersionReport:
    """`aotc --version --json`: what builds and runs here, as far as it is installed."""

    schema: Literal["aotc.version/1"] = "aotc.version/1"
    aotc: str
    python: str
    packages: Annotated[
        Mapping[str, str], "version by distribution: onnx, ONNX Runtime, its plugins and compilers"
    ] = field(default_factory=dict)


@record
class ConfiguredValue:
    """The value of one option, where a call does not give it."""

    command: str
    option: str
    value: Annotated[str, "in words; empty: the command's own"] = ""
    source: Literal["environment", "file", "default"]
    place: Annotated[str, "the variable, or file, line and column; empty for a default"] = ""


@record
class ConfigReport:
    """`aotc config --json`: every default that a configuration may set, and where it comes from."""

    schema: Literal["aotc.config-report/1"] = "aotc.config-report/1"
    file: Annotated[str, "that was read; empty: there is none"] = ""
    values: tuple[ConfiguredValue, ...]


@record
class ListReport:
    """`aotc profile list --json`, `aotc target list --json`: descriptions by name."""

    schema: Literal["aotc.list/1"] = "aotc.list/1"
    kind: Literal["profile", "target"]
    items: Mapping[str, str] = field(default_factory=dict)


@record
class CheckReport:
    """`aotc profile check --json`: the profile with every default written out."""

    schema: Literal["aotc.profile-check/1"] = "aotc.profile-check/1"
    path: str
    valid: bool
    profile: Profile


@record
class DoctorCheck:
    """The result of one check of doctor."""

    name: str
    status: Literal["ok", "note", "failed"]
    found: str
    fix: str = ""


@record
class DoctorTrust:
    """Files that decide whom this host trusts; empty if there is none, or cannot be one."""

    roots: Annotated[str, "file of root keys"] = ""
    policy: Annotated[
        str, "policy that is used without --trust; only a host with root keys has one"
    ] = ""
    state: Annotated[str, "trust state of this user; the file may not exist yet"] = ""


@record
class DoctorReport:
    """`aotc doctor --json`."""

    schema: Literal["aotc.doctor/1"] = "aotc.doctor/1"
    healthy: bool
    checks: tuple[DoctorCheck, ...]
    trust: DoctorTrust = DoctorTrust()
    nvidia: NvidiaState = NvidiaState()
    host: Target


@record
class PlanRow:
    """One way to serve the recorded requests."""

    name: str
    buckets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    variants: int
    seconds: Annotated[float, "expected, of one request on average"]
    ratio: Annotated[float, "to the minimum of all plans"]
    padding: Annotated[float, "elements added, for each element of the requests"]
    coverage: Annotated[float, "share of requests that the plan accepts"] = 1.0
    chosen: bool = False


@record
class SizeCount:
    """Requests of one size of one dim."""

    size: int
    requests: int


@record
class LearnReport:
    """`aotc profile learn --json`: the plans compared, and the profile of the chosen one."""

    schema: Literal["aotc.profile-learn/1"] = "aotc.profile-learn/1"
    path: Annotated[str, "the traffic file"]
    sha256: str
    requests: int
    dims: Annotated[tuple[str, ...], "dims for which buckets were considered"]
    fixed: Annotated[Mapping[str, int], "dims that never vary"] = field(default_factory=dict)
    follows: Annotated[Mapping[str, tuple[str, ...]], "dims that are sums of others"] = field(
        default_factory=dict
    )
    ranges: Annotated[Mapping[str, tuple[int, int]], "dims that keep a range"] = field(
        default_factory=dict
    )
    sizes: Annotated[Mapping[str, tuple[SizeCount, ...]], "distribution, by dim"]
    plans: tuple[PlanRow, ...]
    margin: Annotated[float, "plans that differ by less count as equal"]
    noise: float
    drift: Annotated[float, "between sessions of one size, from other work on the machine"] = 0.0
    new_size_seconds: Annotated[
        float, "seconds by which the first call of a size takes longer, where sizes are not fixed"
    ] = 0.0
    backend: str
    coverage: Annotated[float, "share of requests that the profile accepts"]
    padding: float
    verdict: Annotated[str, "what was chosen and why, in words"]
    profile: Profile


@record
class PackReport:
    """`aotc pack --json`."""

    schema: Literal["aotc.pack/1"] = "aotc.pack/1"
    artifact: Annotated[str, "path of the folder"]
    archive: Annotated[str, "path of the packed artifact"]
    artifact_id: Annotated[str, "sha256 of payload/aotc.json; nothing was verified"]
    files: int
    bytes: Annotated[int, "of the packed artifact"]


@record
class UnpackReport:
    """`aotc unpack --json`."""

    schema: Literal["aotc.unpack/1"] = "aotc.unpack/1"
    archive: Annotated[str, "path of the packed artifact"]
    artifact: Annotated[str, "path of the folder"]
    artifact_id: Annotated[str, "sha256 of payload/aotc.json; nothing was verified"]
    files: int
    bytes: Annotated[int, "of all files"]


@record
class PushReport:
    """`aotc push --json`."""

    schema: Literal["aotc.push/1"] = "aotc.push/1"
    artifact: Annotated[str, "path of the artifact; nothing was verified"]
    artifact_id: Annotated[str, "sha256 of payload/aotc.json"]
    reference: Annotated[str, "what it is pulled by: oci://HOST/REPOSITORY@sha256:DIGEST"]
    digest: Annotated[str, "of its manifest"]
    tags: tuple[str, ...]
    form: Annotated[str, "modelpack or image"]
    base: Annotated[str, "the base image, by its digest; empty: none"] = ""
    layers: Annotated[int, "without those of a base image"]
    attestations: int
    bytes: Annotated[int, "of all layers"]
    bytes_sent: Annotated[int, "of layers"]
    bytes_present: Annotated[int, "of layers that the repository had"]
    bytes_mounted: Annotated[int, "of layers that another repository of the registry had"]
    seconds: float


@record
class Exported:
    """`export.json` of an export: which variant it is, and what its sessions were proven with.

    `${weights}` in an option of a provider is the folder of the export.
    """

    schema: Literal["aotc.exported/1"] = "aotc.exported/1"
    format: str
    name: Annotated[str, "of the artifact"]
    artifact_id: Annotated[str, "sha256 of aotc.json of the artifact, which was verified"]
    variant: str
    model: Annotated[str, "name under which a server knows it; empty: the format has none"] = ""
    unproven: Annotated[str, "why its answers were not compared; empty: they were"] = ""
    providers: Annotated[tuple[str, ...], "execution providers as ORT names them, in order"]
    session: SessionSpec
    requirements: Annotated[Requirements, "what a host must have, which nobody checks"]
    sizes: Annotated[Mapping[str, str], "proven sizes of each free dim"] = field(
        default_factory=dict
    )
    files: Annotated[Mapping[PayloadPath, Sha256], "sha256 by path; all but this file"]


@record
class ExportReport:
    """`aotc export --json`."""

    schema: Literal["aotc.export/1"] = "aotc.export/1"
    artifact: Annotated[str, "path of the artifact, which was verified"]
    artifact_id: Annotated[str, "sha256 of aotc.json"]
    output: Annotated[str, "folder that was written"]
    format: str
    variant: str
    chosen: Annotated[str, "why this variant"]
    files: Annotated[tuple[str, ...], "written, by their paths in the folder"]
    bytes: Annotated[int, "of all files"]
    findings: tuple[Finding, ...] = ()


@record
class MergedVariant:
    """A variant of a merged artifact, and which inputs had it."""

    name: str
    artifacts: Annotated[Mapping[str, str], "what each input that had it calls it, by its path"]
    runs_here: Annotated[bool, "it was loaded from the merged artifact, and its fixtures ran"]


@record
class MergeReport:
    """`aotc merge --json`."""

    schema: Literal["aotc.merge/1"] = "aotc.merge/1"
    artifact: Annotated[str, "folder or file that was written"]
    artifact_id: Annotated[str, "sha256 of aotc.json"]
    merged: Annotated[Mapping[str, str], "ids of the inputs, by their paths"]
    variants: tuple[MergedVariant, ...]
    payload_bytes: int
    input_bytes: Annotated[int, "payloads of the inputs together"]
    built_alike: Annotated[bool, "one build on one of the hosts could have given this payload"]
    key_id: str
    identity: Annotated[str, "of a keyless signer: IDENTITY by ISSUER; empty for a key"] = ""
    development_key: bool
    findings: tuple[Finding, ...] = ()
    seconds: float


@record
class InstallReport:
    """`aotc install --json`: an artifact that is now in a store."""

    schema: Literal["aotc.install/1"] = "aotc.install/1"
    artifact: Annotated[str, "path it was read from"]
    artifact_id: Sha256
    name: str
    store: Annotated[str, "folder of the store"]
    folder: Annotated[str, "folder of the entry, an artifact that can be verified and loaded"]
    installed: Annotated[
        bool, "true: copied now; false: it was there, and its digests were checked again"
    ]
    attestations: Annotated[tuple[str, ...], "bundles that were added to the entry"] = ()
    bytes: Annotated[int, "of the payload"]
    findings: tuple[Finding, ...] = ()
    seconds: float


@record
class PullReport:
    """`aotc pull --json`: an artifact of a registry that is here now, verified."""

    schema: Literal["aotc.pull/1"] = "aotc.pull/1"
    reference: Annotated[str, "as it was given, with oci://"]
    origin: Annotated[str, "HOST/REPOSITORY@DIGEST: what a tag was resolved to, once"]
    artifact_id: Sha256
    name: str
    store: Annotated[str, "folder of the store; empty: it was pulled into an output"] = ""
    path: Annotated[str, "folder of the store's entry, or the output: a folder or a packed file"]
    pulled: Annotated[
        bool, "true: fetched now; false: the store had it, and its digests were checked again"
    ]
    attestations: Annotated[tuple[str, ...], "bundles that were added to the store's entry"] = ()
    bytes: Annotated[int, "of the payload, without aotc.json"]
    bytes_fetched: Annotated[int, "of these, from the registry"]
    bytes_present: Annotated[int, "of these, left by an earlier pull that ended halfway"] = 0
    findings: tuple[Finding, ...] = ()
    seconds: float


@record
class StoreEntry:
    """One artifact of a store, not verified."""

    artifact_id: Annotated[str, "id in the name of its folder"]
    name: Annotated[str, "name in its manifest; empty if that cannot be read"]
    bytes: int
    attestations: Annotated[int, "signature bundles"]
    installed_at: Annotated[str, "UTC, ISO 8601"]
    used_at: Annotated[
        str,
        "last known use; UTC, ISO 8601. Uses by others than the store's owner are known from the "
        "file system, to the day",
    ]
    in_use: Annotated[bool, "a process has loaded it, or is about to"]


@record
class StoreListReport:
    """`aotc store list --json`: the entry that was used last comes first."""

    schema: Literal["aotc.store-list/1"] = "aotc.store-list/1"
    store: str
    bytes: int
    entries: tuple[StoreEntry, ...]


@record
class StorePruneReport:
    """`aotc store prune --json`, `aotc store remove --json`: what was removed and what remains."""

    schema: Literal["aotc.store-prune/1"] = "aotc.store-prune/1"
    store: str
    removed: Annotated[tuple[str, ...], "ids of artifacts"] = ()
    removed_bytes: int = 0
    leftovers: Annotated[int, "incomplete folders of processes that were killed"] = 0
    in_use: Annotated[tuple[str, ...], "ids that were not removed because they are in use"] = ()
    kept: Annotated[int, "entries"] = 0
    kept_bytes: int = 0


@record
class TrustReport:
    """`aotc trust init|add|check|sign --json`: the policy after the command."""

    schema: Literal["aotc.trust-report/1"] = "aotc.trust-report/1"
    file: str
    name: str
    sequence: int
    sha256: str
    expires: str
    rules: tuple[str, ...]
    keys: Annotated[tuple[str, ...], "ids of keys, authorities and identities that are not revoked"]
    revoked_keys: Annotated[
        Mapping[str, str], "reasons by id, or by sha256 of a key; a reason may be empty"
    ] = field(default_factory=dict)
    revoked_artifacts: Annotated[tuple[str, ...], "artifact ids"] = ()
    signed_by: Annotated[
        tuple[str, ...], "key ids of roots: all that count, or the one that signed now"
    ] = ()
    counting: Annotated[
        tuple[str, ...] | None,
        "for `sign`: roots of this host that have signed; None: it has no roots",
    ] = None
    threshold: Annotated[int | None, "for `sign`: number of roots of this host that must sign"] = (
        None
    )
    findings: tuple[Finding, ...] = ()
    bundle: Annotated[str, "the signature that was written"] = ""
    checked: Annotated[
        bool, "whether it was checked as this host checks a policy before using it"
    ] = False


@record
class RootReport:
    """`aotc trust root --json`: the file of root keys that was written."""

    schema: Literal["aotc.root-report/1"] = "aotc.root-report/1"
    file: str
    policy: Annotated[str, "name of the only policy that hosts with this file take"]
    threshold: int
    keys: Annotated[tuple[str, ...], "key ids"]
