"""What `aotc bench` answers, and one line of a history of measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.base.records import field, record
from aotc.spec.codec import Bounds
from aotc.spec.payload import Finding, Sha256
from aotc.spec.reports import LoadReport
from aotc.spec.target import Gpu

# A line holds no more samples than this: of more, as many quantiles.
MAX_SAMPLES = 512

_Seconds = Annotated[float, Bounds(0)]
# No clock tells less from nothing.
_Sample = Annotated[float, Bounds(1e-12)]


@record
class Machine:
    """What decides how fast a machine is, as far as it says; without a name of its own."""

    cpu: Annotated[str, "model of the first CPU; empty: unknown"]
    architecture: Annotated[str, "as uname -m says"]
    isa: Annotated[tuple[str, ...] | None, "CPU features that matter to ONNX Runtime"] = None
    cores: Annotated[int | None, "physical cores that the process may run on"] = None
    processors: Annotated[int | None, "logical processors that the process may run on"] = None
    quota: Annotated[float | None, "processors that the control group allows; None: all"] = None
    governor: Annotated[str, "of the CPUs' frequency; empty: unknown"] = ""
    gpus: tuple[Gpu, ...] = ()
    nvidia_driver: str | None = None


@record
class HistoryLine:
    """One measurement of an artifact: a line of `aotc bench --history FILE`."""

    schema: Literal["aotc.bench-history/1"] = "aotc.bench-history/1"
    measured_at: Annotated[str, "RFC 3339, UTC"]
    machine: Machine
    onnxruntime: Annotated[str, "version"]
    name: Annotated[str, "of the artifact"]
    artifact_id: Sha256
    model_sha256: Annotated[Sha256, "of the model from which the artifact was built"]
    variant: str
    sizes: Annotated[Mapping[str, int], "of the dims"]
    threads: int | None = None
    streams: Annotated[int, Bounds(1)] = 1
    load_seconds: _Seconds
    mean_seconds: _Seconds
    latency_seconds: Annotated[
        Mapping[str, _Seconds], "p50, p90, p99; without those for which there are too few samples"
    ] = field(default_factory=dict)
    calls_per_second: _Seconds
    runs: Annotated[int, Bounds(1), "timed calls"]
    samples: Annotated[
        tuple[_Sample, ...],
        Bounds(1, MAX_SAMPLES),
        "seconds of the calls, ascending; of more than 512, the quantiles of 512 even shares",
    ]
    verdict: Annotated[
        Literal["", "slower", "within", "inconclusive"], "on the baseline; empty: there was none"
    ] = ""


Verdict = Literal["slower", "within", "inconclusive"]


@record
class Timing:
    """One side: its load, and its calls, in seconds; quantiles are of nearest rank."""

    name: str
    load_seconds: float
    first_run_seconds: Annotated[float, "first run after the load"]
    median_seconds: float
    lower_seconds: Annotated[float, "first quartile"]
    upper_seconds: Annotated[float, "third quartile"]
    samples: Annotated[int, "timed calls, of all streams together"] = 0
    mean_seconds: float | None = None
    latency_seconds: Annotated[
        Mapping[str, float], "p50, p90, p99; without those for which there are too few samples"
    ] = field(default_factory=dict)
    samples_needed: Annotated[
        Mapping[str, int], "samples that a quantile needs which is not stated"
    ] = field(default_factory=dict)
    calls_per_second: Annotated[
        float | None, "calls / time from the first to the last, of all streams together"
    ] = None


@record
class NodeTime:
    """One node of the session that was profiled."""

    name: Annotated[str, "as in the payload, or as ONNX Runtime named it at load"]
    op: Annotated[str, "op_type, as ONNX Runtime's profile states it"]
    provider: Annotated[str, "that ran it, as ORT names it"]
    promised: Annotated[
        str, "provider that the manifest promises; empty: ONNX Runtime made the node at load"
    ] = ""
    partition: Annotated[str, "compiled partition that the node is; empty: it is a single node"] = (
        ""
    )
    partition_nodes: Annotated[int, "nodes of the graph in that partition"] = 0
    calls: Annotated[float, "in one run, on average; more than 1 in the body of a loop"]
    seconds: Annotated[float, "in one run, on average, without the nodes of its own subgraphs"]
    share: Annotated[float, "of the time of all nodes"]


@record
class ProviderTime:
    """All nodes of one provider."""

    provider: str
    nodes: int
    seconds: Annotated[float, "in one run, on average"]
    share: Annotated[float, "of the time of all nodes"]


@record
class NodesReport:
    """Time per node, from ONNX Runtime's profile of a session that is not otherwise timed."""

    variant: str
    profiled_runs: Annotated[int, "without the first ones"]
    runs: Annotated[int, "of which the times are: those up to the median run"]
    run_seconds: Annotated[float, "one such run, on average"]
    node_seconds: Annotated[float, "all nodes of one such run, on average"]
    providers: Annotated[tuple[ProviderTime, ...], "the slowest first"]
    nodes: Annotated[tuple[NodeTime, ...], "the slowest first"]
    asynchronous: Annotated[
        tuple[str, ...], "providers of whose nodes the launch was timed, not the computation"
    ] = ()


@record
class Comparison:
    """The artifact's median latency over that of the baseline, and what follows."""

    baseline: Annotated[str, "artifact, or file of a history"]
    kind: Literal["artifact", "history"]
    artifact_id: Annotated[str, "of the baseline"]
    measured_at: Annotated[str, "of the history's last such line; empty: measured now, in turn"] = (
        ""
    )
    ratio: Annotated[float, "artifact's median / baseline's"]
    lower: Annotated[float, "end of the confidence interval of the ratio"]
    upper: Annotated[float, "end of the confidence interval of the ratio"]
    confidence: float
    max_ratio: Annotated[float, "ratio up to which the artifact is not called slower"]
    rounds: Annotated[int, "that the interval is drawn from"]
    measurements: Annotated[int, "lines of the history; 1: the baseline was measured now"] = 1
    verdict: Annotated[
        Verdict, "slower: lower > allow; within: upper <= allow; else it is not shown"
    ]
    code: Annotated[str, "AOTC-I067 where it is slower"] = ""
    reason: Annotated[str, "of the verdict, in words"]


@record
class BenchReport:
    """`aotc bench --json`: all sides run in turn in one process, on the same inputs."""

    schema: Literal["aotc.bench/1"] = "aotc.bench/1"
    artifact: str
    variant: str
    sizes: Annotated[Mapping[str, int], "of the dims"]
    runs: Annotated[int, "timed calls of each side"]
    threads: Annotated[int | None, "of one operator; None: one for each core"] = None
    streams: Annotated[int, "threads that call one model, each again as soon as it is answered"] = 1
    warmup_calls: Annotated[int, "calls of each side before the first that is timed"] = 0
    order: Annotated[tuple[tuple[str, ...], ...], "the sides in each round, as they ran"] = ()
    load: LoadReport
    timings: tuple[Timing, ...]
    findings: tuple[Finding, ...] = ()
    load_ratio: Annotated[float | None, "session of the artifact / of the model"] = None
    first_ratio: Annotated[
        float | None,
        "artifact's verification, load, warm-up and first run / model's load and first run",
    ] = None
    latency_ratio: Annotated[float | None, "artifact's median / model's"] = None
    nodes: Annotated[NodesReport | None, "None: they were not asked for"] = None
    comparison: Annotated[Comparison | None, "None: there is no baseline"] = None
