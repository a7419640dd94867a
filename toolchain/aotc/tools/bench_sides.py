"""What is measured in turn, artifacts and plain models, and the rounds in which they run."""

from __future__ import annotations

import collections
import contextlib
import gc
import itertools
import math
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read
from aotc.base.files.reading import open_plain, read_at_most, require_model_file
from aotc.base.records import field, record, values_of
from aotc.graph.wire_count import MalformedWire, refuse_costly
from aotc.runtime.loading import load
from aotc.runtime.model import Model
from aotc.runtime.telemetry import percentile
from aotc.session import sessions
from aotc.spec.bench_reports import Timing
from aotc.spec.providers import CPU
from aotc.spec.variant import SessionSpec
from aotc.tools.bench_comparison import stated_quantiles
from aotc.tools.example_inputs import Inputs
from aotc.trust.references import ExternalData, InMemory, MalformedModel, references

if TYPE_CHECKING:
    import onnxruntime as ort


# Runs several sides in turn: in rounds, in each of which every side runs one block of calls.
#
# A machine's speed drifts while it is measured, by other work, clock rates and heat. So sides are
# interleaved, and the order of their blocks within a round is drawn anew for each, so that no side
# always follows the same other one. The first call of a block is not timed: it meets caches that
# another side filled, and threads of another side's session that still wait for work. Python's
# garbage collector waits for the end of a block, because what is kept of the calls would start it.


MAX_ROUNDS: Final = 30
_MIN_ROUNDS: Final = 10
_MAX_BYTES: Final = 2**31 - 1
# Calls of each stream in a block: fewer, and most of a block runs with idle streams.
_CALLS_OF_A_STREAM: Final = 8
# More threads than any machine has cores for wait for one another, and for nothing else.
MAX_STREAMS: Final = 256
# Of one side: more would fill memory, and say nothing new.
_MAX_CALLS: Final = 1_000_000
_SEED: Final = 20260131

Call = Callable[[], object]


@record
class Plan:
    """How long to measure: `runs` calls of each side, or `seconds` of all, whichever ends first."""

    runs: int | None
    seconds: float | None
    streams: int = 1
    warm_up: int = 0


@record(kw_only=False)
class TimedCall:
    """One timed call: its stream, its start by `time.perf_counter`, and its seconds."""

    stream: int
    start: float
    seconds: float


@record
class Block:
    """The timed calls of one side in one round; `seconds` is from the first to the last."""

    side: str
    round: int
    seconds: float
    calls: tuple[TimedCall, ...]


@record(frozen=False)
class Measured:
    """All blocks, in the order in which they ran."""

    blocks: list[Block] = field(default_factory=list)

    def of(self, side: str) -> list[Block]:
        """The blocks of one side, one a round."""
        return [block for block in self.blocks if block.side == side]

    def order(self) -> tuple[tuple[str, ...], ...]:
        """The sides of each round, as they ran."""
        grouped = itertools.groupby(self.blocks, key=lambda block: block.round)
        return tuple(tuple(block.side for block in blocks) for _, blocks in grouped)


def seconds_of(blocks: Sequence[Block]) -> list[list[float]]:
    """The seconds of the calls of each block."""
    return [[call.seconds for call in block.calls] for block in blocks]


def run_rounds(sides: Mapping[str, Call], plan: Plan) -> Measured:
    """Warm up every side, and run all in rounds; raises what a call raises, and stops there.

    With several streams, as many threads call one side, and each begins its next call as soon as
    the last has been answered (a closed loop).
    """
    generator = random.Random(_SEED)  # noqa: S311
    measured = Measured()
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(plan.streams)) if plan.streams > 1 else None
        for call in sides.values():
            for _ in range(plan.warm_up):
                call()
        sizes = block_sizes(plan, _pilot_seconds(sides, plan))
        began = time.perf_counter()
        for number, count in enumerate(sizes):
            if plan.seconds is not None and number and time.perf_counter() - began > plan.seconds:
                break
            for side in generator.sample(list(sides), len(sides)):
                seconds, calls = _run_block(sides[side], count, plan.streams, pool)
                measured.blocks.append(
                    Block(side=side, round=number, seconds=seconds, calls=tuple(calls))
                )
    return measured


def require_plan(plan: Plan) -> None:
    """Raise AOTC-I027 unless there is something to run, and 1 to `MAX_STREAMS` streams."""
    rows = (
        ("streams", plan.streams, 1 <= plan.streams <= MAX_STREAMS, f"1..{MAX_STREAMS}"),
        ("timed runs", plan.runs, plan.runs is None or plan.runs >= 1, ">= 1"),
        ("seconds", plan.seconds, plan.seconds is None or 0 < plan.seconds < math.inf, "> 0"),
        ("runs before the timed ones", plan.warm_up, plan.warm_up >= 0, ">= 0"),
    )
    for what, found, holds, expected in rows:
        if not holds:
            raise AotcError(
                "AOTC-I027",
                f"the number of {what} is out of range",
                expected=expected,
                found=str(found),
            )


def block_sizes(plan: Plan, pilot_seconds: float) -> list[int]:
    """The calls of a block of one side, for each round; `pilot_seconds` is one call of each side.

    There are up to 30 rounds.  With several streams there are fewer, so that all are busy for most
    of a block: 10 at least, unless there are too few calls for each stream to have one.
    """
    runs = _MAX_CALLS if plan.runs is None else min(plan.runs, _MAX_CALLS)
    if plan.seconds is not None:
        # Streams share the cores, so that they may take as long as if they took turns.
        fits = max(1, int(plan.seconds / max(pilot_seconds, 1e-9)))
        runs = min(runs, max(fits, min(runs, MAX_ROUNDS)))
    if plan.streams == 1:
        rounds = min(runs, MAX_ROUNDS)
    else:
        busy = runs // (_CALLS_OF_A_STREAM * plan.streams)
        rounds = max(_MIN_ROUNDS, min(MAX_ROUNDS, busy))
        rounds = max(1, min(rounds, runs // plan.streams))
    size, more = divmod(runs, rounds)
    return [size + (number < more) for number in range(rounds)]


def _pilot_seconds(sides: Mapping[str, Call], plan: Plan) -> float:
    """Seconds of one call of each side, one after the other; 0 where nothing depends on it."""
    if plan.seconds is None:
        return 0.0
    started = time.perf_counter()
    for call in sides.values():
        call()
    return time.perf_counter() - started


def _run_block(
    call: Call, count: int, streams: int, pool: ThreadPoolExecutor | None
) -> tuple[float, list[TimedCall]]:
    """Seconds from the first call to the end of the last, and `count` timed calls."""
    collects = gc.isenabled()
    gc.disable()
    try:
        if pool is None:
            call()
            calls = _run_stream(call, 0, itertools.repeat(0, count))
        else:
            calls = _run_streams(call, count, streams, pool)
    finally:
        if collects:
            gc.enable()
    first = min(each.start for each in calls)
    return max(each.start + each.seconds for each in calls) - first, calls


def _run_stream(call: Call, stream: int, tickets: itertools.repeat[int]) -> list[TimedCall]:
    calls = []
    for _ in tickets:
        started = time.perf_counter()
        call()
        calls.append(TimedCall(stream, started, time.perf_counter() - started))
    return calls


def _run_streams(call: Call, count: int, streams: int, pool: ThreadPoolExecutor) -> list[TimedCall]:
    """`count` calls by all streams together, which begin at the same time."""
    # A shared iterator: its `__next__` is one step of the interpreter, so that no call is lost.
    tickets = itertools.repeat(0, count)
    together = threading.Barrier(streams)

    def end() -> None:
        together.abort()
        collections.deque(tickets, maxlen=0)

    def stream(number: int) -> list[TimedCall]:
        try:
            call()
            together.wait()
            return _run_stream(call, number, tickets)
        except BaseException:
            end()
            raise

    running: list[Future[list[TimedCall]]] = []
    try:
        running += [pool.submit(stream, number) for number in range(streams)]
        errors = [error for each in running if (error := each.exception()) is not None]
    except BaseException:
        # Else those that run would wait for those that do not, or go on after Ctrl-C.
        end()
        raise
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    return [timed for each in running for timed in each.result()]


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


def load_artifact(artifact: str | Path, how: Loading) -> tuple[Model, tuple[Step, ...]]:
    """An artifact, loaded for the second time; raises as `aotc.load` does.

    So its files are in the page cache, and its verified copy in the store.
    """

    def loaded(*, warm_up: bool) -> Model:
        return load(artifact, warm_up=warm_up, **values_of(how))

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


def artifact_side(name: str, ready: Model, inputs: Inputs, steps: tuple[Step, ...]) -> Side:
    """A loaded artifact, called once; raises what a call raises."""
    return _called_once(name, lambda: ready.run(inputs), ready.report.session_seconds, steps)


def require_openable(path: Path) -> None:
    """Raise what a model or its external data would cost or wait for if ONNX Runtime opened it.

    Raises AOTC-I001 (there is no plain file) and I002; what else is wrong ONNX Runtime says.
    """
    from aotc.sources.registry import refuse_source

    require_model_file(path)
    refuse_source(path)
    try:
        data = read_at_most(path, _MAX_BYTES)
        refuse_costly(data, str(path))
        for reference in references(InMemory(data)):
            for key, value in reference.entries if isinstance(reference, ExternalData) else ():
                with suppress(FileNotFoundError):
                    if key == "location":
                        open_plain(path.parent / value).close()
    except OSError as error:
        where = str(error.filename or path)
        raise cannot_read(error, "cannot read the model", where) from None
    except (MalformedWire, MalformedModel):
        return


def model_side(
    path: Path,
    inputs: Inputs,
    names: Sequence[str],
    threads: int | None,
    custom_ops: Sequence[Path] = (),
) -> Side:
    """A plain model with ONNX Runtime's defaults on the CPU, loaded for the second time.

    `names` are the outputs that are asked for, and `custom_ops` libraries to register.  Raises
    AOTC-I012 and R005.
    """
    started = time.perf_counter()
    _open(path, threads, custom_ops)
    again = time.perf_counter()
    opened = _open(path, threads, custom_ops)
    loaded = time.perf_counter()
    ortvalues = sessions.needs_ortvalues(opened)
    steps = (
        Step(name="first load", start=started, seconds=again - started),
        Step(name="load", start=again, seconds=loaded - again),
    )

    def call() -> object:
        return sessions.run(opened, inputs, names, ortvalues=ortvalues)

    return _called_once("model", call, loaded - again, steps)


def _open(path: Path, threads: int | None, custom_ops: Sequence[Path]) -> ort.InferenceSession:
    return sessions.create_session(
        path,
        SessionSpec(optimization="all"),
        providers=(CPU,),
        threads=threads,
        refusal="AOTC-I012",
        custom_ops=custom_ops,
    )


def _called_once(name: str, call: Call, load_seconds: float, steps: tuple[Step, ...]) -> Side:
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


def timing_of(side: Side, blocks: Sequence[Block]) -> Timing:
    """What a side's blocks say, in seconds; there is one call at least."""
    ordered = sorted(call.seconds for block in blocks for call in block.calls)
    stated, needed = stated_quantiles(ordered)
    return Timing(
        name=side.name,
        load_seconds=side.load_seconds,
        first_run_seconds=side.first_seconds,
        median_seconds=percentile(ordered, 0.5),
        lower_seconds=percentile(ordered, 0.25),
        upper_seconds=percentile(ordered, 0.75),
        samples=len(ordered),
        mean_seconds=sum(ordered) / len(ordered),
        latency_seconds=stated,
        samples_needed=needed,
        calls_per_second=len(ordered) / sum(block.seconds for block in blocks),
    )
