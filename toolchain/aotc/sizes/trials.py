"""Runs of the original model at given sizes: each once, logged, its cost counted, within limits."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from aotc.base.progress import Count, Poll
from aotc.base.records import field, record, replace
from aotc.spec.codec import Json
from aotc.spec.profile import ProbeLimits
from aotc.spec.shapes import Relation, Stop

# Why a search ended before it had tried everything.
ENDED: Final[Mapping[Stop, str]] = {
    "runs": "was ended by probe.max_runs",
    "time": "was ended by probe.seconds",
}
# What a byte of a node's output costs, in floating-point operations: many nodes compute little.
_BYTE_WORK: Final = 32
# The search may do this work, some ten seconds of one core, or several times that of its largest
# run; then it gives up what would only tell more of the range.
_FREE_WORK: Final = 1e12
_MAX_TIMES: Final = 6
# The files of a log.
TRYING: Final = "trying.json"
TRIED: Final = "tried.jsonl"
STEP: Final = "step"
# Of a search: a base, relations, stated ranges, bounds, corners, size 0, further ranges, and after
# it the outputs at what was found.
_STEPS: Final = 8
# Of each output; None: not a tensor.
Shapes = tuple[tuple[int, ...] | None, ...]
# Estimates input bytes, activation bytes and floating-point operations of a run at given sizes.
Cost = Callable[[Mapping[str, int]], tuple[int, int, float]]
# Bytes of an element, by ONNX Runtime's name of the type.
_WIDTH = {"float": 4, "int64": 8, "double": 8, "float16": 2, "bfloat16": 2, "int32": 4}


@record(kw_only=False)
class Trial:
    """The outcome of one run; `empty` if some output has no elements."""

    ok: bool
    error: str = ""
    empty: bool = False


def work_of(activation_bytes: float, flops: float) -> float:
    """What a run costs, in floating-point operations."""
    return flops + _BYTE_WORK * activation_bytes


@record(frozen=False, kw_only=False)
class Trials:
    """Runs by sizes of `dims`; dims that `relations` derive are added to each.

    `recall` returns runs that were done before, which take no time.  `input_bytes` counts the bytes
    of all inputs at given sizes.  `stop` tells why no more runs are allowed, `error` is the message
    of the last failure.
    """

    dims: Sequence[str]
    limits: ProbeLimits
    trial: Callable[[Mapping[str, int]], Trial]
    late: Callable[[], bool]
    relations: Sequence[Relation] = ()
    recall: Callable[[Mapping[str, int]], Trial | None] = lambda _: None
    input_bytes: Callable[[Mapping[str, int]], int] = lambda _: 0
    runs: int = 0
    error: str = ""
    stop: Stop = ""
    given_up: list[str] = field(default_factory=list)
    """What was not tried, as the work for it was done."""
    _estimate: Cost | None = None
    _known: dict[tuple[int, ...], Trial] = field(default_factory=dict)
    _spent: float = 0.0
    _largest: float = 0.0

    def count_by(self, estimate: Cost) -> None:
        """From now on count the cost of runs by `estimate`; also of those that were done."""
        self._estimate = estimate
        self._spent = self._largest = 0.0
        for key in self._known:
            self._count(dict(zip(self.dims, key, strict=True)))

    def _count(self, sizes: Mapping[str, int]) -> None:
        if self._estimate is not None and 0 not in sizes.values():
            _, activations, flops = self._estimate(sizes)
            work = work_of(activations, flops)
            self._spent += work
            self._largest = max(self._largest, work)

    def gives_up(self, what: str) -> bool:
        """Whether the search has done its work, and does without `what`, which is noted."""
        over = self._spent > max(_FREE_WORK, _MAX_TIMES * self._largest)
        if over and what not in self.given_up:
            self.given_up.append(what)
        return over

    def complete(self, sizes: Mapping[str, int], found: Sequence[Relation] = ()) -> dict[str, int]:
        """`sizes` with all derived dims, by the relations `found` and then by those stated."""
        result = dict(sizes)
        for relation in (*found, *self.relations):
            result[relation.dim] = relation.value(result)
        return result

    def run(self, sizes: Mapping[str, int]) -> Trial:
        """The outcome at `sizes`; a failure if the relations make a size negative."""
        sizes = self.complete(sizes)
        if min(sizes.values(), default=0) < 0:
            return Trial(ok=False, error="a size would be negative")
        key = tuple(sizes[dim] for dim in self.dims)
        if key not in self._known:
            named = {dim: sizes[dim] for dim in self.dims}
            before = self.recall(named) if self.runs < self.limits.max_runs else None
            if before is None and self.exhausted():
                return Trial(ok=False, error=self.error)
            self.runs += 1
            outcome = before or self.trial(named)
            self._count(named)
            self._known[key] = outcome
            if not outcome.ok:
                self.error = outcome.error
        return self._known[key]

    def exhausted(self) -> bool:
        """Whether no more runs are allowed."""
        if self.runs >= self.limits.max_runs:
            self.stop = "runs"
        elif self.late():
            self.stop = "time"
        return bool(self.stop)

    def allow_more(self, more: int) -> None:
        """Allow up to `more` further runs, to explain a failure."""
        self.limits = replace(self.limits, max_runs=self.runs + more)
        self.stop = ""

    def inputs_exceed(self, sizes: Mapping[str, int], max_bytes: int) -> bool:
        """Whether the inputs at `sizes` would take more than `max_bytes`; none is created."""
        return self.input_bytes(self.complete(sizes)) > max_bytes

    def exceeded_limit(self, sizes: Mapping[str, int], share: float = 1.0) -> Stop:
        """The limit that a run at `sizes` would exceed, or "".

        `share` scales the limits.
        """
        if self.inputs_exceed(sizes, int(self.limits.max_input_bytes * share)):
            return "bytes"
        if self._estimate is None:
            return ""
        _, activations, flops = self._estimate(sizes)
        if activations > self.limits.max_activation_bytes * share:
            return "bytes"
        return "flops" if flops > self.limits.max_flops * share else ""


# A log of runs in a file, so that a search that starts again repeats none of them.
#
# A run that crashes or hangs ends the process. The next one is started with `TRYING` (the sizes of
# that run, and the CPU time used until then) and `TRIED` (all runs before it).


class FinishedRun(NamedTuple):
    """The outcome of a run, and the shape of each output (None: not a tensor)."""

    trial: Trial
    shapes: Shapes


class TrialLog:
    """Runs by sizes and by the number of the input values."""

    def __init__(self, folder: Path, done: Sequence[Json]) -> None:
        """`done` are the lines that an earlier process wrote."""
        self._trying = folder / TRYING
        self._tried = folder / TRIED
        self._done = {_key(item["sizes"], item["values"]): _from_json(item) for item in done}
        self._step = folder / STEP
        self._tried.write_text("".join(f"{json.dumps(item)}\n" for item in done))

    def begin(self, sizes: Mapping[str, int], seconds: float) -> None:
        """Record that the run at `sizes` starts, after `seconds` of CPU time."""
        self._trying.write_text(json.dumps({"sizes": dict(sizes), "seconds": seconds}))

    def begin_several(self, seconds: float) -> None:
        """Record that several runs go on at once, from `seconds` of CPU time on."""
        self._trying.write_text(json.dumps({"sizes": {}, "seconds": seconds, "several": True}))

    def step(self, number: int) -> None:
        """Record that so many steps of the search are done."""
        self._step.write_text(str(number))

    def done(self, sizes: Mapping[str, int], values: int) -> FinishedRun | None:
        """The run at `sizes` with the input `values` of that number, if it was done before."""
        return self._done.get(_key(sizes, values))

    def add(self, sizes: Mapping[str, int], values: int, done: FinishedRun) -> None:
        """Record the outcome of the run at `sizes`."""
        self._done[_key(sizes, values)] = done
        trial = done.trial
        line = {
            "sizes": dict(sizes),
            "values": values,
            "ok": trial.ok,
            "error": trial.error,
            "empty": trial.empty,
            "shapes": done.shapes,
        }
        with self._tried.open("a") as file:
            file.write(f"{json.dumps(line)}\n")


def runs_so_far(folder: Path) -> Poll:
    """How much of the search in `folder` is done: its steps, and how many runs they took so far.

    How many runs it will take, nobody knows.
    """

    def poll() -> Count | None:
        try:
            runs = (folder / TRIED).read_bytes().count(b"\n")
        except OSError:
            return None
        try:
            step = int((folder / STEP).read_text("ascii"))
        except (OSError, ValueError):
            return Count(runs, None, "probes")
        return Count(step, _STEPS, f"steps, {runs} probes")

    return poll


def read_leftovers(folder: Path) -> tuple[dict[str, int], float, list[Json]]:
    """From a process that died: the sizes it tried, CPU seconds used before, and finished runs.

    No sizes if it did not die during a run.
    """
    last, tried = _last_begun(folder), folder / TRIED
    lines = tried.read_text().splitlines() if tried.exists() else []
    found = last.get("sizes", {}), last.get("seconds", 0.0)
    return *found, [item for line in lines if (item := _parsed(line)) is not None]


def died_in_several(folder: Path) -> bool:
    """Whether a process that died was running several at once."""
    return bool(_last_begun(folder).get("several"))


def _last_begun(folder: Path) -> dict[str, Json]:
    trying = folder / TRYING
    return _parsed(trying.read_text() if trying.exists() else "") or {}


def _parsed(text: str) -> Json | None:
    """The JSON in `text`; None if the process ended while it wrote."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _key(sizes: Mapping[str, int], values: int) -> tuple[int, tuple[tuple[str, int], ...]]:
    return values, tuple(sorted(sizes.items()))


def _from_json(item: Json) -> FinishedRun:
    trial = Trial(ok=item["ok"], error=item["error"], empty=item["empty"])
    return FinishedRun(trial, tuple(tuple(s) if s is not None else None for s in item["shapes"]))


# Limits in CPU time of this process, which do not depend on the load of the machine.
#
# With wall-clock limits a proven range would depend on that load. A process that only waits uses no
# CPU time; the time limit of the whole step ends it.


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """End the process by SIGPROF, even in native code, if the block uses `seconds` of CPU time."""
    # ITIMER_PROF counts user and system time of all threads; SIGPROF ends the process by default.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def renew_cpu_limit(seconds: float) -> None:
    """Within `cpu_limit`: what was used so far no longer counts."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def cpu_deadline(seconds: float) -> Callable[[], bool]:
    """A function that tells whether this process has used `seconds` of CPU time from now on."""
    end = time.process_time() + seconds
    return lambda: time.process_time() > end


# The cost of one run, counted from ONNX Runtime's profile instead of timed.
#
# The profile of an unoptimized session lists every node's input and output shapes. Floating-point
# operations follow from them for the operators that dominate (convolutions, matrix products,
# recurrences); every other node counts one operation per output element.


@record(kw_only=False)
class RunCost:
    """Bytes of all nodes' outputs, and floating-point operations, of one run."""

    activation_bytes: int
    flops: float


def read_profile(path: Path) -> list[RunCost]:
    """The costs of the runs in a profile that ONNX Runtime wrote, in order."""
    runs: list[RunCost] = []
    activations, flops = 0, 0.0
    for event in json.loads(path.read_text(errors="replace")):
        if event.get("cat") == "Session" and event.get("name") == "model_run":
            runs.append(RunCost(activations, flops))
            activations, flops = 0, 0.0
        elif event.get("cat") == "Node" and event.get("name", "").endswith("_kernel_time"):
            size, operations = _node_cost(event["args"])
            activations += size
            flops += operations
    return runs


def _node_cost(args: Mapping[str, Any]) -> tuple[int, float]:
    inputs = [_size_and_shape(entry) for entry in args.get("input_type_shape", ())]
    outputs = [_size_and_shape(entry) for entry in args.get("output_type_shape", ())]
    size = sum(width * math.prod(shape) for width, shape in outputs)
    elements = sum(math.prod(shape) for _, shape in outputs)
    kind = args.get("op_name", "")
    if not inputs or not outputs:
        return size, float(elements)
    shape = inputs[0][1]
    if "Conv" in kind and len(inputs) > 1:
        weight = inputs[1][1]
        dense = math.prod(weight) / max(1, weight[0] if weight else 1)
        return size, 2.0 * elements * dense
    if "Attention" in kind and len(shape) > 1:
        # Each query with each key, and with each value; weights are a matrix of two axes.
        others = [s for _, s in (*inputs[1:], *outputs[1:])]
        keys = max(shape[-2], *(s[-2] for s in others if len(s) > 2), 1)
        projected = sum(s[-1] for s in others if len(s) == 2 and s[0] == shape[-1])
        return size, math.prod(shape) * (4.0 * keys + 2.0 * projected)
    if ("MatMul" in kind or "Gemm" in kind) and shape:
        return size, 2.0 * elements * max(shape[-1], 1)
    if kind in ("LSTM", "GRU", "RNN") and len(inputs) > 2:
        steps = math.prod(shape[:2]) if len(shape) > 1 else 1
        return size, 2.0 * steps * (math.prod(inputs[1][1]) + math.prod(inputs[2][1]))
    return size, float(elements)


def _size_and_shape(entry: Mapping[str, list[int]]) -> tuple[int, tuple[int, ...]]:
    for dtype, shape in entry.items():
        return _WIDTH.get(dtype, 1), tuple(shape)
    return 0, (0,)


@record(kw_only=False)
class Growth:
    """How one figure grows with one dim: a parabola through up to three points."""

    points: tuple[tuple[int, float], ...]

    def at(self, size: int) -> float:
        """The figure at `size` (Lagrange interpolation); from the last point on never below it."""
        total = 0.0
        for i, (x, y) in enumerate(self.points):
            weight = 1.0
            for j, (other, _) in enumerate(self.points):
                if i != j:
                    weight *= (size - other) / (x - other)
            total += y * weight
        last_size, last = self.points[-1]
        if len(self.points) == 1:
            total = last * max(1.0, size / max(last_size, 1))
        return max(total, last if size >= last_size else 0.0)
