"""What a build measured: the predicate of the evidence attestation, with tuning and node errors."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from aotc.base.records import field, record
from aotc.spec.memory import PlannedMemory
from aotc.spec.precision import (
    BlockSettings,
    Form,
    Goal,
    Isa,
    Level,
    Name,
    Precision,
    QuantizedForm,
)
from aotc.spec.providers import Fusion, Layout

# The largest float, where an error cannot be measured: JSON has no infinity.
UNBOUNDED: Final = sys.float_info.max
# Of the time in `keep`: what is less is not told from noise.
SLOWER: Final = 1.03


@record
class SliceError:
    """The slice of an output whose error is largest beside what it may be.

    `error`, `scale` and `allowed` are in the output's unit.
    """

    axis: Annotated[int | None, "None: all of the output"] = None
    first: Annotated[int, "first index on the axis"] = 0
    last: Annotated[int | None, "last index on the axis; None: the last that there is"] = 0
    node: Annotated[
        str, "node that joins or takes apart the output there, in whose layout the axis is"
    ] = ""
    values: Annotated[int, "values of the slice, without fill"] = 0
    scale: Annotated[float, "spread of the reference's values"]
    error: Annotated[float, "root mean square of actual - reference"]
    allowed: float
    ratio: Annotated[float, "error / allowed"]

    @property
    def place(self) -> str:
        """Where it is, in words."""
        if self.axis is None:
            return "the whole output"
        at = "index" if self.last == self.first else "indices"
        to = "" if self.last == self.first else ".." if self.last is None else f"..{self.last}"
        return f"axis {self.axis}, {at} {self.first}{to}{f' of {self.node}' if self.node else ''}"


def worst_of(*found: SliceError | None) -> SliceError | None:
    """The one whose error is largest beside what it may be; None if there is none."""
    return max(filter(None, found), key=lambda each: each.ratio, default=None)


def standing_fixture(runs: Mapping[str, float]) -> str:
    """The timed fixture that stands for a variant: that of its optimal sizes; empty for none."""
    return next((name for name in ("opt", "opt-sampled") if name in runs), next(iter(runs), ""))


@record
class OutputError:
    """The error of one output against the reference, in one comparison."""

    output: str
    max_abs: Annotated[
        float, "max |actual - reference|; the largest float if no error can be measured"
    ]
    max_rel: Annotated[float, "max |actual - reference| / max |reference|"]
    cosine: Annotated[float | None, "of the flattened tensors; None if a norm is zero"] = None
    sqnr_db: Annotated[
        float | None, "signal to error, in decibels; None if either is zero, or not measured"
    ] = None
    agreement: Annotated[
        float | None, "share of rows whose largest value agrees; None: not measured"
    ] = None
    non_finite_share: Annotated[
        float, "share of values that are NaN or infinite in both, which nothing measures"
    ] = 0.0
    worst_slice: Annotated[SliceError | None, "None: no float output, or it has no scale"] = None
    passed: bool = True
    reason: Annotated[str, "what failed, in words; empty if it passed"] = ""
    breached: Annotated[
        tuple[str, ...],
        "what failed: form (type, shape, or where NaN is), tolerance, slice (one by its own "
        "scale), or limits of the output's gate by their names",
    ] = ()
    rule: Annotated[
        str, "in words, what values that are no floats are judged by; empty: the tolerance"
    ] = ""
    differing: Annotated[int, "of these values, how many differ"] = 0
    allowed: Annotated[int, "how many may"] = 0
    within_margin: Annotated[
        int | None,
        "how many of those that differ were decided so narrowly that the tolerance explains it; "
        "None: not known, or not asked as too many differ",
    ] = None


@record
class Comparison:
    """One fixture, run by the reference and by a variant."""

    fixture: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    padded_to: Annotated[
        Mapping[str, int], "sizes of all dims in the variant's run; empty: not padded"
    ] = field(default_factory=dict)
    outputs: tuple[OutputError, ...]


@record
class OutputNoise:
    """The error of the original in float32 against itself in float64, worst over all fixtures."""

    output: str
    max_abs: Annotated[
        float, "max |float32 - float64|; the largest float if no error can be measured"
    ]
    max_rel: Annotated[float, "max |float32 - float64| / max |float64|"]
    cosine: Annotated[float | None, "of the flattened tensors; None if a norm is zero"] = None
    sqnr_db: Annotated[float | None, "signal to noise, in decibels; None if either is zero"] = None
    breached: Annotated[
        tuple[str, ...], "tolerances and limits of the profile that the original does not keep"
    ] = ()


@record
class TaskResult:
    """A metric of the original and of a variant on the user's labelled set."""

    metric: str
    output: str
    samples: Annotated[int, "of the labelled set that the variant's sizes take"]
    original: Annotated[float, "the original's metric on these samples"]
    variant: float
    drop: Annotated[float, "original - variant; negative where the variant is better"]
    max_drop: float
    passed: bool
    nan_answers: Annotated[
        int, "answers of the variant with NaN, which count as wrong; 0 for a function"
    ] = 0


@record
class WrongForm:
    """A form of a variant that was built but gave wrong answers, and was replaced by another."""

    form: Annotated[str, "level of optimization, or nodes"]
    provider: Annotated[str, "provider that ran the nodes; empty: the CPU, at that level"] = ""
    reason: str
    slowdown: Annotated[
        float | None, "time of the form that replaced it, divided by its own; None: not measured"
    ] = None


@record
class FormTiming:
    """A variant and another form of it, timed in alternating runs of one process."""

    other: Annotated[str, "name of the other variant"]
    fixture: str
    seconds: Annotated[float, "median of one run"]
    other_seconds: Annotated[float, "median of one run of the other form"]
    same_bytes: Annotated[bool, "whether both answer the fixture with the same bytes"]

    @property
    def ratio(self) -> float:
        """Its time divided by that of the other form."""
        return self.seconds / self.other_seconds


@record
class OperatorCost:
    """An operator whose nodes take longer in a lower precision, by ONNX Runtime's own profile."""

    op: Annotated[str, "operator of the graph that ONNX Runtime runs"]
    seconds: Annotated[float, "of all its nodes in one call"]
    keep_seconds: Annotated[float, "of all its nodes in one call in keep"]
    nodes: Annotated[tuple[str, ...], "the slowest of them, at most 3"] = ()


@record
class AgainstKeep:
    """A variant in a lower precision beside the same one in `keep`, called in turn in one process.

    Ratios are its time divided by that in `keep`.
    """

    precision: Precision
    form: Annotated[QuantizedForm | None, "of quantization; None: it is not quantized"] = None
    goal: Goal = "speed"
    fixture: str = ""
    clock: Annotated[
        Literal["processor", "wall"], "processor: time of one thread; wall: with all threads"
    ] = "processor"
    rounds: int = 0
    processes: Annotated[int, "in which the rounds were"] = 0
    seconds: Annotated[float | None, "median of one call; None: see why_not"] = None
    keep_seconds: Annotated[float | None, "median of one call in keep"] = None
    ratio: Annotated[float | None, "of the processes' median ratios of a round, the median"] = None
    ratio_low: Annotated[
        float | None,
        "of the processes' 90 % intervals of it, the lowest end; None: of trials, by medians alone",
    ] = None
    ratio_high: Annotated[float | None, "the highest end"] = None
    weights_bytes: int = 0
    keep_weights_bytes: int = 0
    peak_memory_bytes: Annotated[
        int | None, "of a process that makes one call; None: goal is not memory"
    ] = None
    keep_peak_memory_bytes: int | None = None
    costs: Annotated[tuple[OperatorCost, ...], "what takes longer, if the variant is slower"] = ()
    why_not: Annotated[str, "why it was not timed; empty if it was"] = ""

    @property
    def speedup(self) -> float | None:
        """The time in `keep` divided by its own; None if they were not measured."""
        return 1 / self.ratio if self.ratio else None

    @property
    def is_slower(self) -> bool:
        """Whether it is slower than in `keep` by more than the noise."""
        if self.ratio is None:
            return False
        return self.ratio >= SLOWER and (self.ratio_low or self.ratio) > 1

    def of_goal(self, goal: Goal) -> tuple[float | None, float | None]:
        """What it takes and what `keep` takes, in seconds or bytes; None: not measured."""
        if goal == "speed":
            return self.seconds, self.keep_seconds
        if goal == "size":
            return self.weights_bytes, self.keep_weights_bytes
        return self.peak_memory_bytes, self.keep_peak_memory_bytes

    def meets(self, goal: Goal) -> bool | None:
        """Whether it gains what a lower precision is for; None if that is not known.

        Of speed, whether it is not slower by more than the noise.
        """
        own, kept = self.of_goal(goal)
        if own is None or kept is None:
            return None
        return not self.is_slower if goal == "speed" else own < kept


@record
class DifferingOutput:
    """An output whose bytes were not those of the first of some equal calls."""

    output: str
    differing_values: Annotated[int, "how many values differed, in the call with most of them"]
    total_values: Annotated[int, "values of the output"]
    max_abs: Annotated[float | None, "largest difference; None: of what is no number"] = None


@record
class Repeats:
    """Equal calls of one session and, if `reloaded`, of a second session of the same variant."""

    fixture: str
    runs: Annotated[int, "calls after the first"]
    reloaded: bool = False
    differing_runs: Annotated[int, "calls with other bytes than the first"] = 0
    outputs: tuple[DifferingOutput, ...] = ()
    setting: Annotated[
        str, "setting of the provider with which all calls had the same bytes; empty: none did"
    ] = ""
    tried: Annotated[tuple[str, ...], "settings that were tried, with `setting` the last"] = ()


@record
class RunSpread:
    """How far the seconds of equal warm calls of one fixture are apart."""

    calls: Annotated[int, "that were timed, the first calls not among them"]
    tenth_seconds: Annotated[float, "a tenth of the calls took at most this"]
    lower_seconds: Annotated[float, "lower quartile"]
    upper_seconds: Annotated[float, "upper quartile"]
    ninetieth_seconds: Annotated[float, "nine tenths of the calls took at most this"]

    def share_of(self, median: float) -> float | None:
        """The distance of the quartiles by the median of the same calls; None of one or two."""
        if self.calls < 3 or not median:
            return None
        return (self.upper_seconds - self.lower_seconds) / median


@record
class ArenaStatistics:
    """What ONNX Runtime counts of one allocator of a session (`AllocatorGetStats`), in bytes.

    Bytes in use are of whole chunks: an arena gives a chunk of up to twice what was asked for.
    """

    in_use: Annotated[int, "of packed weights, and of what calls hold"]
    max_in_use: Annotated[int, "the most since the session was opened"]
    allocated: Annotated[int, "taken from the operating system or the device, and not given back"]
    largest: Annotated[int, "the largest single allocation"]
    allocations: int
    reserves: Annotated[int, "allocations beside the arena, such as those of weights"]
    extensions: Annotated[int, "times that the arena grew"]
    shrinkages: int = 0
    limit: Annotated[int | None, "that the arena may grow to; None: no limit"] = None
    requested_in_use: Annotated[
        int | None, "of `in_use` what was asked for; None: this version does not count it"
    ] = None


@record
class ResidentMemory:
    """Resident memory of a process, in bytes, as Linux counts it (`smaps_rollup`)."""

    resident: int
    private: Annotated[
        int, "that this process alone wrote: arenas, and weights that were copied or packed"
    ]
    shared: Annotated[int, "that other processes map too, such as libraries"]
    file_backed: Annotated[
        int, "pages of files, of this process alone or shared: libraries, and mapped weights"
    ]


@record
class MemoryAtSizes:
    """What a session of its own used of ONNX Runtime's arenas at one size; bytes."""

    fixture: str
    sizes: Annotated[Mapping[str, int], "sizes of all dims in the calls"]
    activation_bytes: Annotated[
        int,
        "peak in use during calls, less what was in use before the first: activations, outputs, "
        "workspace; inputs are the caller's",
    ]
    first_bytes: Annotated[
        int, "the same in the first call alone, which has no memory pattern of its sizes yet"
    ]
    output_bytes: Annotated[int, "that the outputs of a call hold"]
    loaded: ArenaStatistics
    arena: Annotated[ArenaStatistics, "after the calls, with no outputs kept"]
    device: Annotated[
        ArenaStatistics | None, "of the arena on the GPU, after the calls; None: there is none"
    ] = None
    device_activation_bytes: Annotated[
        int | None, "`activation_bytes` of the arena on the GPU; None: there is none"
    ] = None

    @property
    def unused_share(self) -> float:
        """Of what the arena took, the share that was not in use at the peak."""
        arena = self.arena
        return 1 - arena.max_in_use / arena.allocated if arena.allocated else 0.0


@record
class MixedCalls:
    """Calls of all sizes in turn in one session; bytes after the first round and at the end."""

    calls: int
    sizes: Annotated[int, "how many sizes took turns"]
    planned_calls: Annotated[int, "fewer were made if the time for them was over"]
    first_allocated: Annotated[int, "of all arenas, after each size was called twice"]
    last_allocated: int
    last_growth: Annotated[
        int | None, "the last call after which arenas had grown; None: none grew after the round"
    ] = None
    last_device_allocated: Annotated[
        int | None, "of `last_allocated`, that of the GPU's arena; None: there is none"
    ] = None
    first_in_use: Annotated[int, "of all arenas, without outputs"]
    last_in_use: int
    first_private: Annotated[int | None, "private resident memory; None: not known here"] = None
    last_private: int | None = None

    @property
    def grown_arena(self) -> int:
        """Bytes that arenas took, or kept in use, after the first round."""
        taken = self.last_allocated - self.first_allocated
        return max(taken, self.last_in_use - self.first_in_use, 0)


@record
class ObservedMemory:
    """Memory of a variant as it was observed on the build host, in a process of its own."""

    onnxruntime: Annotated[str, "version whose library was observed"] = ""
    at: tuple[MemoryAtSizes, ...] = ()
    before: Annotated[
        ResidentMemory | None, "of the process before it opened the session; None: not known"
    ] = None
    after_load: ResidentMemory | None = None
    after_largest: Annotated[ResidentMemory | None, "after calls of the largest size"] = None
    peak_resident: Annotated[
        int | None, "of the process, of the load and calls of the largest size"
    ] = None
    mixed: Annotated[MixedCalls | None, "None: not called so"] = None
    why_not: Annotated[
        str, "why ONNX Runtime's statistics are not known, in words; empty if they are"
    ] = ""
    elsewhere: Annotated[
        bool, "whether that is because nodes run on a provider with memory of its own"
    ] = False


@record
class VariantEvidence:
    """Measurements of one variant on the build host, in seconds and bytes."""

    name: str
    comparisons: tuple[Comparison, ...] = ()
    together: Annotated[
        Mapping[str, SliceError],
        "by output, the worst slice of the answers to all fixtures together",
    ] = field(default_factory=dict)
    unpartitioned: Annotated[
        tuple[Comparison, ...],
        "of the unpartitioned graph on the CPU, if this host cannot run the variant",
    ] = ()
    load_seconds: float | None = None
    first_run_seconds: float | None = None
    run_seconds: Annotated[Mapping[str, float], "median of warm calls, by timed fixture"] = field(
        default_factory=dict
    )
    run_spread: Annotated[Mapping[str, RunSpread], "of the same calls"] = field(
        default_factory=dict
    )
    waited_share: Annotated[
        float | None,
        "share of its time that the proof waited for a CPU that ran something else; None: unknown",
    ] = None
    peak_memory_bytes: int | None = None
    device_bytes: Annotated[
        int | None,
        "device memory of its session after it ran the fixtures, captured graphs apart; None: not "
        "on a GPU",
    ] = None
    plain_device_bytes: Annotated[
        int | None,
        "of a session of the user's model with ONNX Runtime's defaults, after its first run",
    ] = None
    task: Annotated[TaskResult | None, "None: the profile has no gates.task"] = None
    replaced_forms: Annotated[
        tuple[WrongForm, ...], "replaced forms, which gave wrong answers"
    ] = ()
    blamed: Annotated[
        Blamed | None, "nodes to blame for the error in a lower precision; None: not searched"
    ] = None
    timed_against: Annotated[
        FormTiming | None, "the portable form of a quantized variant that requires VNNI"
    ] = None
    against_keep: Annotated[
        AgainstKeep | None, "beside the same variant in keep; None: its precision is keep"
    ] = None
    repeats: Annotated[Repeats | None, "equal calls whose answers were compared"] = None
    memory: Annotated[
        ObservedMemory | None, "as observed apart from the proof; None: it was not"
    ] = None
    planned: Annotated[
        PlannedMemory | None, "the memory plan of its graph as this host loads it; None: no plan"
    ] = None


@record
class Evidence:
    """Predicate `urn:aotc:evidence:v1`: measurements of one build, which are not reproducible."""

    built_at: Annotated[str, "UTC, ISO 8601"]
    stages: Annotated[Mapping[str, float], "seconds by stage"]
    variants: tuple[VariantEvidence, ...]
    noise: Annotated[
        tuple[OutputNoise, ...], "of the original, by output; empty: not measured"
    ] = ()
    host: Annotated[Mapping[str, str], "OS, architecture, CPU features; no names"]
    notes: tuple[str, ...] = ()
    tuning: Annotated[tuple[TuningCandidate, ...], "candidates that were tried"] = ()
    model_sha256: Annotated[str, "sha256 of the model file"] = ""
    tuned_model_sha256: Annotated[str, "sha256 of the model file that --tune measured"] = ""
    exported: Annotated[
        tuple[Comparison, ...],
        "of the model that a framework's exporter made, beside the framework's own answers",
    ] = ()
    merged: Annotated[
        tuple[MergedProof, ...],
        "of a merged artifact: what was measured where; each variant stands above as the first of "
        "these measured it",
    ] = ()


@record
class MergedProof:
    """Where, when and with what an artifact was proven whose variants were merged into this one."""

    artifact_id: Annotated[str, "sha256 of its aotc.json"]
    statement_sha256: Annotated[str, "of the bundle with its evidence, as it was verified"]
    host: Annotated[Mapping[str, str], "OS, architecture, CPU features; no names"]
    target: str
    onnxruntime: Annotated[str, "version that built and proved it"]
    built_at: Annotated[str, "UTC, ISO 8601"]
    stages: Annotated[Mapping[str, float], "seconds by stage"] = field(default_factory=dict)
    variants: Annotated[Mapping[str, str], "what it calls each variant, by the name here"]
    further: Annotated[
        tuple[VariantEvidence, ...],
        "of variants that an earlier one of these proved too, whose measurements stand above",
    ] = ()
    noise: tuple[OutputNoise, ...] = ()
    notes: tuple[str, ...] = ()
    tuning: tuple[TuningCandidate, ...] = ()
    tuned_model_sha256: str = ""
    exported: tuple[Comparison, ...] = ()


# Which nodes make a variant in a lower precision too inexact.


# By what a search ended: all was tried that it tries, or there were no more trials, or no time.
SearchEnd = Literal["complete", "trials", "time"]


@record
class OutputChange:
    """The largest error of one output over the fixtures, before and after."""

    output: str
    max_abs_before: float
    max_rel_before: Annotated[float, "max |actual - reference| / max |reference|"]
    max_abs_after: Annotated[float | None, "None: no set of nodes passes"] = None
    max_rel_after: float | None = None


@record
class Blamed:
    """The nodes to blame for one variant's errors, by the names of the imported model.

    A limit ratio is the largest of measured/limit over outputs, fixtures and limits: above 1 where
    a limit is not met.
    """

    variant: str
    precision: Precision
    keep_float32: Annotated[
        tuple[str, ...],
        "with these in float32 the variant passes, in the order of the model; empty: none found",
    ] = ()
    keep_float32_before: Annotated[
        tuple[str, ...], "names and patterns that were in float32 already, and stay there"
    ] = ()
    first: Annotated[str, "first node out of tolerance whose inputs are within it"] = ""
    worst: Annotated[str, "node that adds most to the error of its inputs"] = ""
    candidates: Annotated[int, "nodes that compute in the lower precision"] = 0
    limit_ratio_before: float = 0.0
    limit_ratio_after: Annotated[float | None, "None: no set of nodes passes"] = None
    outputs: tuple[OutputChange, ...] = ()
    trials: Annotated[int, "sessions that were made and run"] = 0
    max_trials: int = 0
    minimal: Annotated[bool, "it was tried that none of `kept` can be left out"] = False
    all_pass: Annotated[
        bool | None,
        "whether it passes with all of them in float32; False: precision is not to blame, None: "
        "not tried",
    ] = None
    search_ended: Annotated[
        SearchEnd,
        "by what the search ended; time: that of a step, so a quicker host may find fewer nodes",
    ] = "complete"
    optimization: Annotated[str, "level at which it was tried"] = ""
    profile: Annotated[str, "line for the profile; empty: no set was found"] = ""


# How far the values inside of a variant are from those of its model, node by node.


@record
class NodeError:
    """The error of one value that both graphs compute, on one fixture."""

    node: Annotated[str, "node of the source model that makes it"]
    op: Annotated[str, "domain::op_type; without domain for ONNX's own"]
    value: Annotated[str, "name of the value in the source model"]
    variant_node: Annotated[str, "node of the variant that makes it"] = ""
    covers: Annotated[
        tuple[str, ...], "source nodes from the compared values that it reads to this one, in order"
    ] = ()
    max_abs: float
    max_rel: Annotated[float, "max |actual - reference| / max |reference|"]
    cosine: float | None = None
    sqnr_db: Annotated[float | None, "signal to error, in decibels; None if either is zero"] = None
    added: Annotated[
        float | None,
        "energy of the error by that of the signal, less the largest such of the compared values "
        "that it reads; None if that cannot be measured, as where NaN or infinities differ",
    ] = None
    passed: Annotated[bool, "within the tolerance of the variant's outputs"] = True
    reason: Annotated[str, "what failed, in words; empty if it passed"] = ""
    module: Annotated[str, "path of the framework's module, such as encoder.layer.3"] = ""
    place: Annotated[str, "in the user's code, as file:line"] = ""


@record
class NodeErrors:
    """The errors of all values that could be compared, in the order of the source model."""

    fixture: str = ""
    nodes: tuple[NodeError, ...] = ()
    uncompared: Annotated[int, "values of the source that the variant does not have"] = 0
    first: Annotated[str, "first node out of tolerance whose inputs are within it"] = ""
    worst: Annotated[str, "node that adds most to the error of its inputs"] = ""
    outputs_changed: Annotated[
        bool, "the variant answers with other bits while its inner values are read"
    ] = False

    def of_node(self, name: str) -> NodeError | None:
        """The error of the value that a source node makes; the worst if it makes several."""
        found = [error for error in self.nodes if error.node == name]
        return max(found, key=lambda error: error.max_rel, default=None)


# What `--tune` and `precision: auto` tried: the evidence holds it, and `--tuned-from` reads it.


@record
class TuningCandidate:
    """One candidate for a variant, with its time if it passed parity and could be timed."""

    variant: Annotated[str, "variant of the profile"]
    providers: tuple[Name, ...]
    isa: Isa = "baseline"
    optimization: Level = "auto"
    precision: Precision = "keep"
    form: Annotated[Form, "of quantization; auto: as the profile says"] = "auto"
    blocks: Annotated[BlockSettings | None, "of weights alone; None: as the profile says"] = None
    fusion: Annotated[Fusion, "of the graph, for CUDA"] = "auto"
    layout: Annotated[Layout, "of images, on CUDA"] = "auto"
    threads: Annotated[int | None, "for one operator; None: one for each core"] = None
    passed: bool = False
    keep_float32: Annotated[tuple[str, ...], "nodes without which in float32 it did not pass"] = ()
    trials: Annotated[int, "sessions that were run to find these nodes"] = 0
    search_ended: Annotated[
        SearchEnd, "by what the search for them ended; time: a quicker host may keep fewer"
    ] = "complete"
    reason: Annotated[str, "why it did not pass; empty if it passed"] = ""
    median_seconds: Annotated[
        float | None, "of one run; candidates are measured in turn; None: not run here"
    ] = None
    minimum_seconds: Annotated[float | None, "of the fastest run"] = None
    rounds: int = 0
    clock: Annotated[
        Literal["wall", "processor"], "processor: of one thread, on the CPU provider alone"
    ] = "wall"
    sizes: Annotated[str, "sizes of the dims in the runs"] = ""
    chosen: bool = False
