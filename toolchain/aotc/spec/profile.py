"""Profiles: what a user requires of an artifact.  YAML, schema `aotc.profile/1`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Literal

from aotc.base.errors import AotcError
from aotc.base.files.folders import MANIFEST
from aotc.base.records import field, record
from aotc.spec.allowed_values import MAX_VALUES, AllowedValues
from aotc.spec.codec import Aliases, Bounds, ParseError, Pattern, Problem, decode
from aotc.spec.manifest import Manifest, MergedBuild
from aotc.spec.payload import Sha256
from aotc.spec.precision import (
    PRECISION_ALIASES,
    BlameSpec,
    CalibrationSpec,
    GateSpec,
    Goal,
    Isa,
    Level,
    Name,
    ParitySpec,
    Precision,
    Prepack,
    QuantizationSpec,
    RepeatSpec,
    Share,
    Traffic,
    WantedPrecision,
    quantization_problems,
)
from aotc.spec.providers import CAPTURING, CudaOptions, Fusion, Layout, option_problem
from aotc.spec.relations import read_relations
from aotc.spec.shapes import DimRange, PadSpec

_ALIASES = Aliases(tuple(PRECISION_ALIASES.items()))
RandomPolicy = Literal["free", "seed", "as-input", "refuse"]
# RFC 8785 keeps integers exact up to 2^53 - 1.
Bytes = Annotated[int, Bounds(0, 2**53 - 1)]
Seconds = Annotated[float, Bounds(0, 1e6)]


@record
class VariantSpec:
    """One variant to build."""

    name: Annotated[Name, "variant's name"]
    isa: Annotated[
        Isa,
        "baseline runs on any CPU of the architecture; host requires exactly the target's features",
    ] = "baseline"
    prepack: Annotated[
        Prepack,
        "weights packed for the CPU's kernels: by each session at load; by the build, so that all "
        "sessions map them from one file (isa: host only; about 1.8 times the disk); or not at all",
    ] = "at-load"
    providers: Annotated[
        tuple[Name, ...] | None, "execution providers of this variant; unset: the profile's"
    ] = None
    precision: Annotated[
        Annotated[WantedPrecision, _ALIASES] | None, "of this variant; unset: the profile's"
    ] = None
    goal: Annotated[Goal | None, "of this variant; unset: the profile's"] = None
    quantization: Annotated[QuantizationSpec | None, "of this variant; unset: the profile's"] = None
    keep_float32: Annotated[tuple[str, ...] | None, "of this variant; unset: the profile's"] = None
    threads: Annotated[
        Annotated[int, Bounds(1, 1024)] | None, "of one operator; unset: one for each core"
    ] = None
    cuda: Annotated[CudaOptions | None, "of this variant; unset: the profile's"] = None

    optimization: Annotated[
        Level, "of ONNX Runtime; auto is the highest that the variant's hosts allow"
    ] = "auto"

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        if self.optimization != "auto" and self.isa == "host":
            return [Problem("optimization", "isa: host allows the highest level only")]
        if self.prepack == "saved" and self.isa != "host":
            return [Problem("prepack", "weights are packed for one ISA: saved needs isa: host")]
        return []


@record
class ProviderBudget:
    """Bounds on the share of nodes that one execution provider runs."""

    min_node_share: Share = 0.0
    max_node_share: Share = 1.0


@record
class Budgets:
    """Limits that the artifact must meet; exceeding one ends the build with exit status 1."""

    artifact_bytes: Annotated[Bytes | None, "payload, in bytes"] = None
    load_seconds: Annotated[float | None, "creation of one variant's session, in seconds"] = None
    peak_memory_bytes: Annotated[Bytes | None, "resident, at the largest shape, in bytes"] = None
    device_memory_bytes: Annotated[
        Bytes | None, "of a GPU, that a variant takes with its calls, in bytes"
    ] = None
    concurrency: Annotated[
        Annotated[int, Bounds(1)], "calls at once for which budgets of memory are judged"
    ] = 1
    providers: Annotated[Mapping[str, ProviderBudget], "by execution provider"] = field(
        default_factory=dict
    )
    cpu_share: Annotated[
        Share | None, "of the floating-point operations, at the optimal shape, on the CPU"
    ] = None
    partitions: Annotated[Annotated[int, Bounds(1)] | None, "partitions of one variant"] = None
    transfer_bytes: Annotated[
        Bytes | None, "moved between providers in one call at the largest shape"
    ] = None
    speedup: Annotated[
        Annotated[float, Bounds(0)] | None,
        "time of a call in keep / in a lower precision, of every variant that has one",
    ] = None


@record
class Fallback:
    """What happens to nodes that only the CPU takes, and if a variant exceeds a budget.

    `fail`: the build fails; nodes may be on the CPU only if `providers` lists `cpu`.
    `cpu`: nodes may be on the CPU, up to `max_node_share` of them.
    `alternate-variant`: the variant is left out, and another one of the profile takes its calls.
    `reject-route`: a variant for certain sizes is left out, and calls of these sizes are refused.
    """

    policy: Literal["fail", "cpu", "alternate-variant", "reject-route"] = "fail"
    max_node_share: Annotated[Share, "of nodes on the CPU, with policy cpu"] = 1.0


@record
class PluginSpec:
    """An execution provider plugin that the user installed."""

    provider: Annotated[str, "execution provider, as the library names it"]
    library: Annotated[str, "path of the shared library"]
    options: Annotated[Mapping[str, str], "provider options, used at build and at load"] = field(
        default_factory=dict
    )

    def problems(self) -> list[Problem]:
        """Options that an artifact must not have."""
        found = {
            key: option_problem(self.provider, key, value, plugin=True)
            for key, value in self.options.items()
        }
        return [Problem(f"options.{key}", why) for key, why in found.items() if why]


@record
class CustomOpsSpec:
    """A library of operators that ONNX Runtime does not have."""

    library: Annotated[str, "path of the shared library"]
    sha256: Annotated[Sha256 | None, "of the library; another one is refused"] = None
    ship: Annotated[
        bool, "as a file of the artifact; false: who loads it names a library of the same digest"
    ] = True


@record
class PartitionSpec:
    """When a partition is worth its boundaries."""

    min_nodes: Annotated[
        int, Bounds(1), "a smaller partition is given to the next provider that takes its nodes"
    ] = 1
    weigh_boundaries: Annotated[
        bool, "so is one that, by estimated rates, gains less than its boundaries cost"
    ] = True


@record
class Waiver:
    """A refusal at load that the builder accepts in advance; the artifact records it."""

    code: Literal["AOTC-P003", "AOTC-C013"]
    variant: Annotated[str, "variant of the profile; empty: all"] = ""
    reason: Annotated[str, Pattern(r".*\S.*"), "why, for an audit"]


@record
class TuneSpec:
    """What `--tune` tries; the variant's own value is kept for what is not listed."""

    providers: Annotated[tuple[tuple[Name, ...], ...], "orders of execution providers"] = ()
    threads: Annotated[tuple[Annotated[int, Bounds(1, 1024)], ...], "of one operator"] = ()
    isa: Annotated[tuple[Isa, ...], "level and layout"] = ()
    optimization: Annotated[tuple[Level, ...], "levels of ONNX Runtime"] = ()
    precision: Annotated[
        tuple[Annotated[Precision, _ALIASES], ...],
        "that may be chosen, if all gates hold; `precision: auto` tries them too",
    ] = ()
    fusion: Annotated[tuple[Fusion, ...], "of CUDA variants"] = ()
    layout: Annotated[tuple[Layout, ...], "of CUDA variants"] = ()
    rounds: Annotated[int, Bounds(3, 1000), "alternating rounds that are measured"] = 31
    seconds: Annotated[
        Annotated[float, Bounds(0, 86_400)] | None,
        "for the trials of `precision: auto`; unset: four fifths of what comes before them takes, "
        "and 6 s",
    ] = None


@record
class ProbeLimits:
    """Limits of the search for the sizes at which the model runs.

    Except for the seconds they limit counts, so that two builds find the same range.  Seconds are
    CPU time of the search, so other work on the machine does not use them up.
    """

    max_size: Annotated[
        int,
        Bounds(1, 2**31),
        "largest size tried for a dim; of an image at most 4096, of a batch 1024",
    ] = 1 << 18
    max_input_bytes: Annotated[Bytes, "of all inputs of one run"] = 64 << 20
    max_activation_bytes: Annotated[Bytes, "sum of all nodes' outputs in one run"] = 8 << 30
    max_flops: Annotated[int, Bounds(1, 2**53 - 1), "multiply-adds times two, in one run"] = (
        320_000_000_000
    )
    max_runs: Annotated[int, Bounds(1, 1_000_000), "runs of the original model"] = 1600
    seconds: Annotated[Seconds, "of CPU time, for the whole search"] = 300.0
    run_seconds: Annotated[Seconds, "of CPU time, for one run; a longer one counts as a hang"] = (
        60.0
    )


@record
class WorkerLimits:
    """Limits of each sandboxed step."""

    seconds: Annotated[Seconds, "wall-clock time, so that a step that only waits ends too"] = 1800.0
    memory_bytes: Annotated[Bytes, "private memory"] = 16 << 30
    processes: Annotated[
        int, Bounds(1, 1_000_000), "processes of this user, above which a step cannot start one"
    ] = 16384
    parallel: Annotated[
        int, Bounds(1, 64), "steps in parallel; large models always run one at a time"
    ] = 4


@record
class FixtureSpec:
    """Golden inputs and outputs that ship with the artifact, for warm-up and acceptance."""

    max_count: Annotated[int, Bounds(0, 16)] = 2
    max_bytes: Annotated[Bytes, "of all fixtures together"] = 4 << 20


@record
class TelemetrySpec:
    """How the calls of a loaded artifact are measured."""

    latency_buckets: Annotated[
        tuple[Annotated[float, Bounds(0, 1e6)], ...],
        Bounds(0, 64),
        "ends of the buckets of a histogram of latencies, ascending, in seconds; none: those for "
        "calls of 0.1 ms to 10 s",
    ] = ()

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        ends = self.latency_buckets
        if any(end <= 0 for end in ends) or list(ends) != sorted(set(ends)):
            return [Problem("latency_buckets", "is not a list of ascending seconds above 0")]
        return []


@record
class InputSpec:
    """What the profile states about one input: shape, dtype, values, and how it is padded.

    With `min` and `max`, or `values`, calls with other values are refused, and generated inputs
    have no others.  The bounds are inclusive.
    """

    shape: Annotated[tuple[int | str, ...] | None, "sizes or dim names, first to last"] = None
    dtype: Annotated[
        str | None,
        "the model's own, such as float32 or int64; or float16 or bfloat16 for one of float32, "
        "which callers then pass in that type",
    ] = None
    pad: Annotated[PadSpec, "along every dim that is padded"] = PadSpec()
    min: Annotated[int | float | str | None, "smallest value; text: a dim, or a sum of dims"] = None
    max: Annotated[int | float | str | None, "largest value; text: a dim, or a sum of dims"] = None
    values: Annotated[
        tuple[int | float | str, ...], Bounds(None, MAX_VALUES), "the only values"
    ] = ()

    @property
    def allowed(self) -> AllowedValues | None:
        """The values that calls are held to; None: all."""
        found = AllowedValues(min=self.min, max=self.max, values=self.values)
        return None if found == AllowedValues() else found

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        return self.allowed.problems() if self.allowed is not None else []


@record
class OutputSpec:
    """What the profile states about one output: its dtype, and how padding is cut off."""

    dtype: Annotated[
        str | None,
        "the model's own; or float16 or bfloat16 for one of float32, which callers then get in "
        "that type",
    ] = None
    crop: Annotated[
        Mapping[str, str] | None,
        "dim by axis along which padding is cut off; unset: found by running",
    ] = None


@record
class Profile:
    """A resolved profile."""

    schema: Annotated[Literal["aotc.profile/1"], "version of this schema"]
    name: Annotated[Name, "profile's name"]
    description: str = ""
    target: Annotated[str, "name of a built-in target, or file; host: the build host"] = "host"
    providers: Annotated[tuple[Name, ...], Bounds(1), "execution providers, first choice first"] = (
        "cpu",
    )
    plugins: Annotated[
        Mapping[Name, PluginSpec], "execution providers that the user adds, by name"
    ] = field(default_factory=dict)
    custom_ops: Annotated[
        tuple[CustomOpsSpec, ...], Bounds(0, 16), "libraries of operators that the model uses"
    ] = ()
    compute_capabilities: Annotated[
        tuple[Annotated[str, Pattern(r"\d+\.\d+")], ...],
        "for which GPU code is compiled; none: those of the target's GPUs",
    ] = ()
    precision: Annotated[
        WantedPrecision,
        _ALIASES,
        "keep computes exactly as the model's own types say; the others are faster and less exact; "
        "auto is the quickest of them that passes all gates",
    ] = "keep"
    goal: Annotated[
        Goal,
        "what a lower precision is for: quicker calls, a smaller file, or less memory; the build "
        "says so where a variant does not meet it",
    ] = "speed"
    keep_float32: Annotated[
        tuple[str, ...],
        "names of nodes that a lower precision leaves in float32; * stands for any characters",
    ] = ()
    quantization: Annotated[QuantizationSpec, "for precision int8 and int4"] = QuantizationSpec()
    calibration: Annotated[CalibrationSpec, "data for static quantization"] = CalibrationSpec()
    gates: Annotated[GateSpec, "how good every variant must stay, beyond parity"] = GateSpec()
    blame: Annotated[BlameSpec, "which nodes are to blame where these fail"] = BlameSpec()
    vnni_variants: Annotated[
        Literal["auto", "none"],
        "auto: a quantized variant whose weights were rewritten so that no CPU saturates has a "
        "companion as in the model, for CPUs with VNNI",
    ] = "auto"
    opset: Annotated[
        Literal["auto", "keep"], "auto converts if that keeps nodes on an execution provider"
    ] = "auto"
    cuda: Annotated[CudaOptions, "for variants on CUDA"] = CudaOptions()
    partitioning: PartitionSpec = PartitionSpec()
    variants: Annotated[tuple[VariantSpec, ...], Bounds(1, 64)] = (VariantSpec(name="portable"),)
    dims: Annotated[Mapping[str, DimRange], "ranges of named dims: 8, 1..8 or {min, opt, max}"] = (
        field(default_factory=dict)
    )
    inputs: Annotated[Mapping[str, InputSpec], "statements about inputs, by name"] = field(
        default_factory=dict
    )
    relations: Annotated[
        tuple[str, ...], "relations of dims: 'batch = ids.0 = mask.0', 'total = past + seq'"
    ] = ()
    outputs: Annotated[Mapping[str, OutputSpec], "statements about outputs, by name"] = field(
        default_factory=dict
    )
    max_variants: Annotated[int, Bounds(1, 256), "of the artifact; buckets multiply them"] = 32
    traffic: Annotated[Traffic | None, "what the shapes were learned from"] = None
    strict: Annotated[bool, "also refuse calls outside ranges that were probed"] = False
    unproven: Annotated[Literal["refuse", "allow"], "variants the build host cannot run"] = "refuse"
    random: Annotated[
        RandomPolicy,
        "numbers that the model draws: calls go on drawing, as in ONNX Runtime (free), or every "
        "call draws anew from the model's own seeds (seed), or passes them (as-input), or there "
        "may be none (refuse)",
    ] = "free"
    fallback: Fallback = Fallback()
    waivers: tuple[Waiver, ...] = ()
    tune: TuneSpec = TuneSpec()
    parity: ParitySpec = ParitySpec()
    repeatability: RepeatSpec = RepeatSpec()
    budgets: Budgets = Budgets()
    fixtures: FixtureSpec = FixtureSpec()
    telemetry: Annotated[TelemetrySpec, "of calls, where the artifact is loaded"] = TelemetrySpec()
    probe: ProbeLimits = ProbeLimits()
    limits: WorkerLimits = WorkerLimits()

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        found = []
        names = [variant.name for variant in self.variants]
        if len(set(names)) != len(names):
            found.append(Problem("variants", "two variants have the same name"))
        if all(variant.isa != "baseline" for variant in self.variants):
            found.append(Problem("variants", "one variant must have isa: baseline"))
        if len(set(self.providers)) != len(self.providers):
            found.append(Problem("providers", "a provider is named twice"))
        specs = {variant.name for variant in self.variants}
        for index, waiver in enumerate(self.waivers):
            if waiver.variant and waiver.variant not in specs:
                found.append(
                    Problem(f"waivers[{index}].variant", "is not a variant of the profile")
                )
        known = {*self.providers, *(n for spec in self.variants for n in spec.providers or ())}
        known |= {"cpu", *(name for order in self.tune.providers for name in order)}
        for name in self.budgets.providers:
            if name not in known:
                text = f"is not a provider of the profile: {', '.join(sorted(known))}"
                found.append(Problem(f"budgets.providers.{name}", text))
        found += self._bounds_without_effect()
        stated = [(spec.precision or self.precision, spec.quantization) for spec in self.variants]
        found += quantization_problems(self.quantization, stated, self.tune.precision)
        found += self._count_problems()
        try:
            read_relations(self.relations)
        except ParseError as error:
            found += [Problem(f"relations{p.path}", p.what, p.code) for p in error.problems]
        return found

    def cuda_of(self, spec: VariantSpec) -> CudaOptions:
        """How one of its variants uses CUDA."""
        return spec.cuda or self.cuda

    def captures_sizes(self, spec: VariantSpec) -> bool:
        """Whether one variant captures all buckets as CUDA graphs, in place of static variants."""
        graphs = self.cuda_of(spec).graphs
        on_cuda = (spec.providers or self.providers)[0] == CAPTURING.name
        return on_cuda and graphs.capture != "none" and not graphs.static

    def variant_count(self) -> int:
        """How many variants its buckets make."""
        combinations = self._combinations()
        routed = any(spec.routes for spec in self.dims.values())
        return sum(
            1 if self.captures_sizes(spec) else combinations + routed for spec in self.variants
        )

    def _combinations(self) -> int:
        return math.prod(len(spec.buckets) or 1 for spec in self.dims.values())

    def _count_problems(self) -> list[Problem]:
        found = []
        if (count := self.variant_count()) > self.max_variants:
            text = f"buckets make {count} variants, more than max_variants {self.max_variants}"
            found.append(Problem("dims", text, "AOTC-S017"))
        combinations = self._combinations()
        for spec in self.variants:
            maximum = self.cuda_of(spec).graphs.max_count
            if self.captures_sizes(spec) and combinations > maximum:
                text = (
                    f"buckets make {combinations} sizes to capture for variant {spec.name}, more "
                    f"than cuda.graphs.max_count {maximum}"
                )
                found.append(Problem("dims", text, "AOTC-S031"))
        return found

    def _bounds_without_effect(self) -> list[Problem]:
        """Bounds on the CPU's share although every node is the CPU's."""
        if any((spec.providers or self.providers)[0] != "cpu" for spec in self.variants):
            return []
        text = "has no effect: the CPU is the first choice of every variant"
        found = []
        if self.budgets.cpu_share is not None:
            found.append(Problem("budgets.cpu_share", text))
        if self.fallback.max_node_share < 1:
            found.append(Problem("fallback.max_node_share", text))
        return found


# The profile with which an artifact was built, from its manifest.


class _ByIdentity:
    """A manifest that is only equal to itself, as the key of a cache."""

    __slots__ = ("manifest",)

    def __init__(self, manifest: Manifest | MergedBuild) -> None:
        self.manifest = manifest

    def __hash__(self) -> int:
        return id(self.manifest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.manifest is self.manifest


def profile_of(manifest: Manifest, variant: str = "") -> Profile:
    """The profile with which an artifact, or one variant of a merged one, was built.

    Raises AOTC-G009 and I046.
    """
    built = manifest.origins(variant)[0] if variant and manifest.merged else manifest
    return _decode_profile(_ByIdentity(built))


# A load needs it several times, for one manifest.
@lru_cache(maxsize=1)
def _decode_profile(wrapped: _ByIdentity) -> Profile:
    try:
        return decode(Profile, wrapped.manifest.profile, allow_unknown=True)
    except ParseError as error:
        first = error.problems[0]
        raise AotcError(
            first.code or "AOTC-G009",
            "the profile in the manifest is malformed",
            where=f"{MANIFEST}: profile.{first.path}",
            found=first.what,
        ) from None
