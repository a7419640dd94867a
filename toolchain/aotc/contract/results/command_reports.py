"""What the smaller commands print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from aotc.contract.finding import Finding
from aotc.contract.profile import Profile
from aotc.contract.results.nvidia_state import NvidiaState
from aotc.contract.results.reports import LoadReport, Refusal
from aotc.contract.target import Target
from aotc.records import field, record


@record
class ErrorReport:
    """What a command prints instead of its own document when it fails."""

    schema: Literal["aotc.error/1"] = "aotc.error/1"
    exit_status: int
    errors: Annotated[tuple[Refusal, ...], "all reasons, the main one first"]


@record
class RunOutput:
    """One output of one run."""

    WIRE_NAMES: ClassVar = {"minimum": "least", "maximum": "most"}

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

    schema: Literal["aotc.config-answer/1"] = "aotc.config-answer/1"
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

    schema: Literal["aotc.check/1"] = "aotc.check/1"
    path: str
    valid: bool
    profile: Profile


@record
class DoctorCheck:
    """The result of one check of doctor."""

    WIRE_NAMES: ClassVar = {"fix": "mend"}

    name: str
    status: Literal["ok", "note", "bad"]
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

    schema: Literal["aotc.learn/1"] = "aotc.learn/1"
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
    new_size: Annotated[
        float, "seconds by which the first call of a size takes longer, where sizes are not fixed"
    ] = 0.0
    backend: str
    coverage: Annotated[float, "share of requests that the profile accepts"]
    padding: float
    verdict: Annotated[str, "what was chosen and why, in words"]
    profile: Profile
