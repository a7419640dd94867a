"""One line of a history of measurements, and the machine that it was measured on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds, Pattern
from aotc.contract.target import Gpu
from aotc.records import field, record

# A line holds no more samples than this: of more, as many quantiles.
MAX_SAMPLES = 512

_Digest = Annotated[str, Pattern(r"[0-9a-f]{64}")]
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
    time: Annotated[str, "RFC 3339, UTC"]
    machine: Machine
    onnxruntime: Annotated[str, "version"]
    name: Annotated[str, "of the artifact"]
    artifact_id: _Digest
    source_sha256: Annotated[_Digest, "of the model from which the artifact was built"]
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
        Literal["", "slower", "within", "not shown"], "on the baseline; empty: there was none"
    ] = ""
