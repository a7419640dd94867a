"""Runs a session, in a thread of its own, by replaying graphs captured for some sizes."""

from __future__ import annotations

import atexit
import itertools
import os
import queue
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np

from aotc.base.errors import AotcError
from aotc.graph.values import NARROW_BITS, Data, nbytes
from aotc.providers.ort import OUT_OF_MEMORY, ort_errors
from aotc.session.device.capture_gate import GATE, capture_refused, do_nothing
from aotc.session.device.device import Bytes, Device, HostDevice, PartOf, read_values
from aotc.session.device.fixed_run import (
    NO_GRAPH,
    CapturedSizes,
    FixedRun,
    Key,
    element_type,
    run_options,
)
from aotc.spec.payload import Finding
from aotc.spec.reports import CapturedGraphs
from aotc.spec.shapes import sizes_in_words
from aotc.spec.variant import GraphCapture

if TYPE_CHECKING:
    import onnxruntime as ort


# Of dropped and refused sizes.
_MAX_FINDINGS: Final = 100
# What keeps a size from being captured, and not from being run.
# Of so many replays, the copies of one are timed: not of the first, whose memory is new.
_TIMED_EVERY: Final = 256
_TIMED: Final = 2
_RUNS_WITHOUT: Final = OUT_OF_MEMORY | {"AOTC-R024", "AOTC-R005"}
_T = TypeVar("_T")
# Captures a size with a runner, and checks what it answers.
Behind = Callable[["CapturingRunner", Mapping[str, int]], object]


class CapturingRunner:
    """Runs one model, whose inputs and outputs are tensors, from any thread.

    All runs take place in one thread, one after the other.  Where captured sizes have sessions of
    their own, `session` runs what is not captured, and so never sees their sizes.
    """

    def __init__(
        self,
        session: ort.InferenceSession,
        device: Device,
        graphs: GraphCapture,
        where: str,
        opener: Callable[[], ort.InferenceSession] | None = None,
    ) -> None:
        """`where` names the variant in messages; `opener` creates a further session of the model.

        Without, all sizes are captured in `session`.  Raises AOTC-R024 if the CPU reads an input,
        or if one is no tensor of whole bytes.
        """
        self.session = session
        self.device = device
        self.where = where
        self.graphs = graphs
        self._dims = tuple(graphs.sizes[0]) if graphs.sizes else ()
        self._captured = CapturedSizes(graphs.max_count, graphs.max_bytes)
        self._opener = opener if graphs.sessions == "each" else None
        self._sessions: dict[Key, ort.InferenceSession] = {}
        # Their sessions stay: one that ends frees memory, which no capture elsewhere may meet.
        self._bound: set[Key] = set()
        self._refused: set[Key] = set()
        # Sizes that are still to be captured behind a load, each with what does it.
        self._waiting: OrderedDict[Key, tuple[Mapping[str, int], Behind]] = OrderedDict()
        # Sizes whose answers were found to be wrong.
        self._failed: dict[Key, AotcError] = {}
        self._ids = itertools.count(1)
        self._findings: list[Finding] = []
        self.on_capture: Callable[[], object] = do_nothing
        self.on_copies: Callable[[int, float], object] = do_nothing
        self._answers = 0
        self._promised = {self._key(sizes) for sizes in graphs.sizes}
        self._outputs = tuple(output.name for output in session.get_outputs())
        self._refuse_other_values()
        self._owner = OwnerThread(f"aotc {where}")
        # A runner that nobody closes must not leave its thread; at the end of a process, which may
        # be a forked child, there is nothing to leave.
        weakref.finalize(self, self._owner.end).atexit = False
        # The first is current in a new thread.
        if device.index:
            self._owner.call(device.select)

    @property
    def captured(self) -> tuple[dict[str, int], ...]:
        """The captured sizes, the least recently used first."""
        return self._sizes(self._captured)

    @property
    def copies(self) -> bool:
        """Those of each call, of which some are timed."""
        return True

    @property
    def captures(self) -> CapturedGraphs:
        """Which sizes are captured now, which still will be, and which are not, in any order."""
        waiting = tuple(self._waiting)
        return CapturedGraphs(
            # What is captured is not checked yet as long as it waits.
            captured=self._sizes(key for key in self._captured if key not in waiting),
            waiting=self._sizes(waiting),
            refused=self._sizes({*tuple(self._refused), *tuple(self._failed)}),
        )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """AOTC-R024 for each size that was dropped, or could not be captured.

        And why a size that was captured behind a load is not answered.
        """
        return tuple(self._findings)

    def run(
        self,
        inputs: Mapping[str, Data],
        names: Sequence[str] | None,
        sizes: Mapping[str, int],
        part_of: PartOf | None = None,
    ) -> list[Data]:
        """The named outputs (None: all) for host arrays at `sizes`, which may be captured.

        Of an output, `part_of` says which part is wanted; all of it may be returned all the same.
        Raises AOTC-M004 and R005.
        """
        wanted = self._outputs if names is None else tuple(dict.fromkeys(names))
        found = self._owner.call(lambda: self._run(inputs, wanted, self._key(sizes), part_of))
        if names is None or len(wanted) == len(names):
            return found
        by_name = dict(zip(wanted, found, strict=True))
        return [by_name[name] for name in names]

    def run_without_graph(
        self, inputs: Mapping[str, Data], sizes: Mapping[str, int] | None = None
    ) -> list[Data]:
        """All outputs, as `run` answers at sizes that are not captured.

        If `sizes` are promised ones that have a session of their own, they run in that: a session
        may plan kernels for long when it meets another size.  Raises AOTC-M004 and R005.
        """

        def once() -> list[Data]:
            own = None
            if sizes is not None and (key := self._key(sizes)) in self._promised:
                own = self._session_of(key)
            with GATE.used(), self.device.lock:
                return self._run_once(inputs, self._outputs, own)

        return self._owner.call(once)

    def capture(self, inputs: Mapping[str, Data], sizes: Mapping[str, int]) -> bool:
        """Capture `sizes` unless they are, with host arrays of these; whether there is a graph.

        If it is refused, and the profile says `run`, such calls run without a graph.  Raises
        AOTC-R024, and M004.
        """
        key = self._key(sizes)
        return self._owner.call(
            lambda: key in self._captured or self._capture(inputs, key) is not None
        )

    def capture_behind(
        self,
        sizes: Sequence[Mapping[str, int]],
        capture: Behind,
    ) -> None:
        """Have `capture` called for each of `sizes` when no call waits, in the runner's own thread.

        A size that is called meanwhile runs without a graph, and is the next.  What fails is a
        finding: such calls run without a graph, or are refused if `capture` raised another code
        than AOTC-R024, M004 and R005, as for wrong answers.  `close` ends all.
        """
        later = {self._key(each): dict(each) for each in sizes}
        # A runner that nobody closes may go meanwhile.
        this = weakref.ref(self)

        def step() -> None:
            if (runner := this()) is not None:
                runner._capture_next()

        def begin() -> None:
            self._waiting.update((key, (each, capture)) for key, each in later.items())
            self._owner.behind([step] * len(later))

        self._owner.call(begin)

    def _capture_next(self) -> None:
        if not self._waiting:
            return
        key, (sizes, capture) = next(iter(self._waiting.items()))
        try:
            capture(self, sizes)
        except Exception as error:
            found = error if isinstance(error, AotcError) else _unexpected(error)
            with GATE.used(), self.device.lock:
                self._captured.discard(key)
                self._leave_session(key)
            if found.code in _RUNS_WITHOUT:
                self._refused.add(key)
                self.note(f"{self._words(key)} runs without a graph: {found.line()}")
            else:
                self._failed[key] = found
                self.note(f"calls of {self._words(key)} are refused: {found.line()}")
        finally:
            self._waiting.pop(key, None)

    def require_accepted(self, sizes: Mapping[str, int]) -> None:
        """Raise what was found to be wrong with `sizes` when they were captured behind a load."""
        self._require_accepted(self._key(sizes))

    def _require_accepted(self, key: Key) -> None:
        if (found := self._failed.get(key)) is not None:
            # Each has a traceback of its own.
            raise copy(found)

    def may_capture(self, sizes: Mapping[str, int]) -> bool:
        """Whether a graph of these sizes was not refused before."""
        return self._key(sizes) not in self._refused

    def has_captured(self, sizes: Mapping[str, int]) -> bool:
        """Whether there is a graph of these sizes, which was compared with a run without it."""
        return self._key(sizes) in self._captured

    def missed_graph(self, sizes: Mapping[str, int]) -> bool:
        """Whether a call of `sizes` has run without a graph that is promised for them."""
        key = self._key(sizes)
        promised = self.graphs.on_call or key in self._promised
        return promised and key not in self._captured

    def next_id(self) -> int:
        """The id of a further graph of a session."""
        return next(self._ids)

    def session_of(self, sizes: Mapping[str, int]) -> ort.InferenceSession:
        """The session in which a bound call of these sizes captures, opened where each has one."""
        key = self._key(sizes)
        self._bound.add(key)
        return self._session_of(key)

    def close(self) -> None:
        """End the thread, and free the buffers when running calls are done.

        Of the captures behind a load, the one that runs is the last.
        """
        self._owner.close()
        self._waiting.clear()
        with GATE.used(), self.device.lock:
            self._captured.clear()
            self._sessions.clear()
            self.device.close()

    def _sizes(self, keys: Iterable[Key]) -> tuple[dict[str, int], ...]:
        return tuple(dict(zip(self._dims, key, strict=True)) for key in keys)

    def _session_of(self, key: Key) -> ort.InferenceSession:
        if self._opener is None:
            return self.session
        if key not in self._sessions:
            with GATE.used():
                self._sessions[key] = self._opener()
        return self._sessions[key]

    def _leave_session(self, key: Key) -> None:
        if key not in self._bound:
            self._sessions.pop(key, None)

    def _key(self, sizes: Mapping[str, int]) -> Key:
        return tuple(sizes.get(dim, 0) for dim in self._dims)

    def _run(
        self,
        inputs: Mapping[str, Data],
        names: Sequence[str],
        key: Key,
        part_of: PartOf | None,
    ) -> list[Data]:
        if key in self._waiting:
            self._waiting.move_to_end(key, last=False)
        self._require_accepted(key)
        run = self._captured.get(key)
        if run is None and self.graphs.on_call and key not in self._refused:
            run = None if self._captured.full else self._captured_in_call(inputs, key)
        with GATE.used(), self.device.lock:
            # Dims that no relation is enforced for may differ under one key.
            if run is None or not run.fits(inputs):
                return self._run_once(inputs, names)
            if self._answers % _TIMED_EVERY != _TIMED:
                found = run.answer(inputs, names, part_of)
            else:
                seconds: list[float] = []
                found = run.answer(inputs, names, part_of, timed=seconds.append)
                copied = sum(nbytes(value) for value in (*inputs.values(), *found))
                self.on_copies(copied, seconds[0])
            self._answers += 1
            return list(found)

    def _run_once(
        self,
        inputs: Mapping[str, Data],
        names: Sequence[str],
        own: ort.InferenceSession | None = None,
    ) -> list[Data]:
        """Run sizes that are not captured, or in their `own` session; the buffers are freed."""
        device, session = self.device, own or self.session
        binding = session.io_binding()
        kept: list[Bytes] = []
        try:
            for name, value in self._uploaded(inputs, kept).items():
                binding.bind_ortvalue_input(name, value)
            for name in names:
                binding.bind_output(name, device.name, device.index)
            # Awaited: what kernels put aside on the host is freed by ONNX Runtime's own wait alone.
            session.run_with_iobinding(binding, run_options(NO_GRAPH))
            return list(read_values(binding.get_outputs(), device))
        except BaseException as error:
            device.settle()
            if isinstance(error, ort_errors()):
                raise device.failure(error) from None
            raise

    def _uploaded(self, inputs: Mapping[str, Data], kept: list[Bytes]) -> dict[str, ort.OrtValue]:
        """Inputs on the device; `kept` is host memory that is read until it is synchronized."""
        values = {}
        for arg in self.session.get_inputs():
            array = np.asarray(inputs[arg.name])
            values[arg.name] = value = self.device.empty(array.shape, element_type(arg))
            kept.append(self.device.upload(value.data_ptr(), array))
        return values

    def _captured_in_call(self, inputs: Mapping[str, Data], key: Key) -> FixedRun | None:
        """The run of a new capture; None if it is refused, or too little memory is left for it."""
        try:
            return self._capture(inputs, key)
        except AotcError as error:
            if error.code not in OUT_OF_MEMORY:
                raise
        self._refused.add(key)
        self.note(f"{self._words(key)} runs without a graph: too little memory for its buffers")
        return None

    def _capture(self, inputs: Mapping[str, Data], key: Key) -> FixedRun | None:
        where = self._words(key)
        with GATE.used(), self.device.lock:
            values = self._planned(inputs, key)
        with GATE.alone(), self.device.lock:
            try:
                run = FixedRun(self._session_of(key), self.device, values, self.next_id())
                wrong = run.replays_wrongly()
            except BaseException as error:
                self.device.settle()
                if not isinstance(error, AotcError) or error.code != "AOTC-R024":
                    self._leave_session(key)
                    raise
                wrong = error.found
            if wrong:
                self._leave_session(key)
                self._refuse(wrong, key)
                return None
            for dropped in self._captured.add(key, run, run.bytes):
                self._leave_session(dropped)
                self.note(f"the graph for {self._words(dropped)} was dropped for that of {where}")
            self.on_capture()
            return run

    def _planned(self, inputs: Mapping[str, Data], key: Key) -> dict[str, ort.OrtValue]:
        """Inputs on the device, which were run once.

        What libraries plan for new sizes takes seconds: other models run meanwhile.
        """
        try:
            values = {
                arg.name: self.device.tensor_of(np.asarray(inputs[arg.name]), element_type(arg))
                for arg in self.session.get_inputs()
            }
            FixedRun(self._session_of(key), self.device, values)
            return values
        except BaseException:
            self.device.settle()
            self._leave_session(key)
            raise

    def _words(self, key: Key) -> str:
        return sizes_in_words(dict(zip(self._dims, key, strict=True)))

    def _refuse(self, why: str, key: Key) -> None:
        self._refused.add(key)
        sizes = self._words(key)
        if self.graphs.on_refusal == "fail":
            raise capture_refused(why, f"{self.where}, {sizes}" if sizes else self.where)
        self.note(f"{sizes or 'the call'} runs without a graph: {why}")

    def note(self, what: str) -> None:
        """Keep a finding AOTC-R024, unless there are many."""
        if len(self._findings) < _MAX_FINDINGS:
            self._findings.append(Finding(code="AOTC-R024", what=what[:500], where=self.where))

    def _refuse_other_values(self) -> None:
        """Values that the CPU reads at capture would not be read again at replays."""
        session = self.session
        for arg in (*session.get_inputs(), *session.get_outputs()):
            if not arg.type.startswith("tensor(") or element_type(arg) in {"string", *NARROW_BITS}:
                raise capture_refused(f"{arg.name!r} is a {arg.type}", self.where)
        if self.device.dlpack_type == HostDevice.dlpack_type:
            return
        for args, infos in (
            (session.get_inputs(), session.get_input_memory_infos()),
            (session.get_outputs(), session.get_output_memory_infos()),
        ):
            for arg, info in zip(args, infos, strict=True):
                if "cpu" in info.name.lower():
                    raise capture_refused(f"the CPU reads or writes {arg.name!r}", self.where)


def _unexpected(error: Exception) -> AotcError:
    return AotcError("AOTC-R005", "capturing it failed", found=repr(error)[:500])


class _Job(Generic[_T]):
    __slots__ = ("done", "error", "function", "result")

    def __init__(self, function: Callable[[], _T]) -> None:
        self.function = function
        self.result: _T | None = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()


class OwnerThread:
    """Runs functions one after the other in a thread of its own, which ends with `close`.

    ONNX Runtime keeps captured CUDA graphs with the thread that captured them: another thread would
    capture anew, and hold memory of its own.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._later: deque[Callable[[], object]] = deque()
        self._process = 0
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(
            target=_work, args=(self._jobs, self._later), name=name, daemon=True
        )
        self._thread.start()

    def call(self, function: Callable[[], _T]) -> _T:
        """What `function` returns or raises; raises AOTC-R005 after `close`."""
        if threading.current_thread() is self._thread:
            return function()
        job = _Job(function)
        with self._closing:
            if self._closed:
                raise AotcError("AOTC-R005", "the model is closed", fix="Load it again.")
            self._jobs.put(job)
        job.done.acquire()
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[return-value]

    def behind(self, functions: Iterable[Callable[[], object]]) -> None:
        """From a function of `call`: run these too, one each time that nothing is called.

        They raise nothing.  `close` waits for the one that runs.
        """
        # A process must not end in the midst of a capture.
        self._process = os.getpid()
        atexit.register(self._close_at_exit)
        self._later.extend(functions)

    def _close_at_exit(self) -> None:
        # A forked child does not have the thread, and perhaps a lock that another one held.
        if os.getpid() == self._process:
            self.close()

    def close(self) -> None:
        """End the thread when all that was called is done; later calls do nothing."""
        atexit.unregister(self._close_at_exit)
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def end(self) -> None:
        """`close`, without waiting."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)


def _work(jobs: queue.SimpleQueue[_Job[Any] | None], later: deque[Callable[[], object]]) -> None:
    while True:
        try:
            job = jobs.get(block=not later)
        except queue.Empty:
            later.popleft()()
            continue
        if job is None:
            return
        try:
            job.result = job.function()
        except BaseException as error:
            job.error = error
        job.done.release()
        # An idle thread must not keep the arrays of the last call.
        del job
