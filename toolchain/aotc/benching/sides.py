"""What is measured in turn: artifacts that are loaded as users load them, and plain models."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aotc.benching.quantiles import stated_quantiles
from aotc.benching.rounds import Block, Call
from aotc.contract.codec.spelling import nearest
from aotc.contract.known_providers import CPU
from aotc.contract.manifest.variant import SessionSpec
from aotc.contract.results.bench_reports import Timing
from aotc.engine import session, values
from aotc.engine.ortvalue import needs_ortvalues
from aotc.errors import AotcError
from aotc.records import record
from aotc.runtime import arrays
from aotc.runtime.loading import load
from aotc.runtime.ready_model import ReadyModel
from aotc.runtime.telemetry import percentile

if TYPE_CHECKING:
    import onnxruntime as ort

Inputs = dict[str, values.Data]


@record
class Loading:
    """How artifacts are loaded: the arguments of `aotc.load` of the same names."""

    trust: str | Path | None = None
    key: str | Path | None = None
    channel: str | None = None
    unsafe_no_trust_state: bool = False
    variant: str | Sequence[str] | None = None
    threads: int | None = None
    store: str | Path | None = None
    trust_store: bool = False


@record
class Step:
    """Something that was done once, for the trace: its start by `time.perf_counter`."""

    name: str
    start: float
    seconds: float


@record
class Side:
    """What is called, the seconds that its session took, and those of its first call."""

    name: str
    call: Call
    load_seconds: float
    first_seconds: float
    steps: tuple[Step, ...]


def load_artifact(artifact: str | Path, how: Loading) -> tuple[ReadyModel, tuple[Step, ...]]:
    """An artifact, loaded for the second time; raises as `aotc.load` does.

    So its files are in the page cache, and its verified copy in the store.
    """

    def loaded(*, warm_up: bool) -> ReadyModel:
        return load(
            artifact,
            trust=how.trust,
            key=how.key,
            channel=how.channel,
            unsafe_no_trust_state=how.unsafe_no_trust_state,
            variant=how.variant,
            threads=how.threads,
            store=how.store,
            trust_store=how.trust_store,
            warm_up=warm_up,
        )

    started = time.perf_counter()
    loaded(warm_up=True).close()
    again = time.perf_counter()
    ready = loaded(warm_up=False)
    opened = time.perf_counter()
    try:
        ready.warm()
    except AotcError:
        ready.close()
        raise
    warmed = time.perf_counter()
    return ready, (
        Step(name="first load", start=started, seconds=again - started),
        Step(name="load", start=again, seconds=opened - again),
        Step(name="warm-up", start=opened, seconds=warmed - opened),
    )


def artifact_side(name: str, ready: ReadyModel, inputs: Inputs, steps: tuple[Step, ...]) -> Side:
    """A loaded artifact, called once; raises what a call raises."""
    return _called_once(name, lambda: ready.run(inputs), ready.report.session_seconds, steps)


def model_side(path: Path, inputs: Inputs, names: Sequence[str], threads: int | None) -> Side:
    """A plain model with ONNX Runtime's defaults on the CPU, loaded for the second time.

    `names` are the outputs that are asked for.  Raises AOTC-I012 and R005.
    """
    started = time.perf_counter()
    _open(path, threads)
    again = time.perf_counter()
    opened = _open(path, threads)
    loaded = time.perf_counter()
    ortvalues = needs_ortvalues(opened)
    steps = (
        Step(name="first load", start=started, seconds=again - started),
        Step(name="load", start=again, seconds=loaded - again),
    )

    def call() -> object:
        return session.run(opened, inputs, names, ortvalues=ortvalues)

    return _called_once("model", call, loaded - again, steps)


def _open(path: Path, threads: int | None) -> ort.InferenceSession:
    return session.create_session(
        path,
        SessionSpec(optimization="all"),
        providers=(CPU,),
        threads=threads,
        refusal="AOTC-I012",
    )


def _called_once(
    name: str, call: Callable[[], object], load_seconds: float, steps: tuple[Step, ...]
) -> Side:
    started = time.perf_counter()
    call()
    seconds = time.perf_counter() - started
    return Side(
        name=name,
        call=call,
        load_seconds=load_seconds,
        first_seconds=seconds,
        steps=(*steps, Step(name="first run", start=started, seconds=seconds)),
    )


def inputs_of(ready: ReadyModel, sizes: Mapping[str, int]) -> tuple[Inputs, dict[str, int]]:
    """The first fixture's inputs at `sizes`, and the resulting sizes of all dims.

    Raises AOTC-I027 if there is no fixture, or no such dim.
    """
    manifest = ready.manifest
    if not manifest.fixtures:
        raise AotcError(
            "AOTC-I027",
            "the artifact holds no fixture to time it with",
            fix="Build it with a larger fixtures.max_bytes.",
        )
    fixture = manifest.fixtures[0]
    known = tuple(manifest.domain.dims)
    for name in sizes:
        if name not in known:
            close = nearest(name, known)
            raise AotcError(
                "AOTC-I027",
                f"the artifact has no free dim {name!r}"
                + (f"; did you mean {close!r}?" if close else ""),
                expected=", ".join(known),
                found=name,
            )
    given = arrays.read_fixture(ready.payload, fixture)
    if not sizes:
        return given, dict(fixture.sizes)
    free = {name: size for name, size in fixture.sizes.items() if name in known}
    used_sizes = manifest.domain.complete({**free, **sizes})
    return arrays.resize(given, manifest.inputs, used_sizes), used_sizes


def timing_of(side: Side, blocks: Sequence[Block]) -> Timing:
    """What a side's blocks say, in seconds; there is one call at least."""
    ordered = sorted(call.seconds for block in blocks for call in block.calls)
    stated, needed = stated_quantiles(ordered)
    return Timing(
        name=side.name,
        load_seconds=side.load_seconds,
        first_seconds=side.first_seconds,
        median_seconds=percentile(ordered, 0.5),
        lower_seconds=percentile(ordered, 0.25),
        upper_seconds=percentile(ordered, 0.75),
        samples=len(ordered),
        mean_seconds=sum(ordered) / len(ordered),
        latency_seconds=stated,
        samples_needed=needed,
        calls_per_second=len(ordered) / sum(block.seconds for block in blocks),
    )
