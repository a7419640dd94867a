"""Runs a session by replaying graphs that were captured for some sizes."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aotc.backends.onnxruntime_import import ort_errors
from aotc.contract.finding import Finding
from aotc.contract.manifest.graph_capture import GraphCapture
from aotc.engine.device.captured_sizes import CapturedSizes, Key
from aotc.engine.device.cuda_place import capture_refused
from aotc.engine.device.device import Device
from aotc.engine.device.fixed_run import (
    NO_GRAPH,
    FixedRun,
    element_type,
    failure,
    read_values,
    run_options,
)
from aotc.engine.device.owner_thread import OwnerThread
from aotc.engine.values import Data
from aotc.errors import AotcError

if TYPE_CHECKING:
    import onnxruntime as ort

# While a graph is captured, CUDA refuses allocations in every thread of the process.
_CAPTURING = threading.Lock()
_RUNNERS: weakref.WeakSet[CapturingRunner] = weakref.WeakSet()


class CapturingRunner:
    """Runs one session, whose inputs and outputs are tensors, from any thread.

    All runs take place in one thread, one after the other.
    """

    def __init__(
        self, session: ort.InferenceSession, device: Device, graphs: GraphCapture, where: str
    ) -> None:
        """`where` names the variant in messages.  Raises AOTC-R024 if the CPU reads an input."""
        self.session = session
        self.device = device
        self.lock = device.lock
        self._where = where
        self._graphs = graphs
        self._dims = tuple(graphs.sizes[0]) if graphs.sizes else ()
        self._captured = CapturedSizes(graphs.max_count, graphs.max_bytes)
        self._ids = itertools.count(1)
        self._findings: list[Finding] = []
        self._outputs = tuple(output.name for output in session.get_outputs())
        self._refuse_host_values()
        self._owner = OwnerThread(f"aotc {where}")
        _RUNNERS.add(self)

    @property
    def captured(self) -> tuple[dict[str, int], ...]:
        """The captured sizes, the least recently used first."""
        return tuple(dict(zip(self._dims, key, strict=True)) for key in self._captured)

    @property
    def captured_bytes(self) -> int:
        """Device memory that the captures took."""
        return self._captured.bytes

    @property
    def findings(self) -> tuple[Finding, ...]:
        """AOTC-R024 for each size that was dropped, or could not be captured."""
        return tuple(self._findings)

    def run(
        self, inputs: Mapping[str, Data], names: Sequence[str] | None, sizes: Mapping[str, int]
    ) -> list[Data]:
        """The named outputs (None: all) for host arrays at `sizes`, which may be captured.

        Raises AOTC-M004 and R005.
        """
        wanted = self._outputs if names is None else names
        return self._owner.call(lambda: self._run(inputs, wanted, self._key(sizes)))

    def capture(self, inputs: Mapping[str, Data], sizes: Mapping[str, int]) -> bool:
        """Capture `sizes`, with host arrays of these; whether a graph was captured.

        If it is refused, and the profile says `run`, such calls run without a graph.  Raises
        AOTC-R024, and M004.
        """
        return self._owner.call(lambda: self._capture(inputs, self._key(sizes)) is not None)

    def next_id(self) -> int:
        """The id of a further graph of the session."""
        return next(self._ids)

    def close(self) -> None:
        """End the thread, and free the buffers when running calls are done."""
        self._owner.close()
        self._captured.clear()
        self.device.close()

    def _key(self, sizes: Mapping[str, int]) -> Key:
        return tuple(sizes.get(dim, 0) for dim in self._dims)

    def _run(self, inputs: Mapping[str, Data], names: Sequence[str], key: Key) -> list[Data]:
        run = self._captured.get(key)
        if run is None and self._graphs.on_call and not self._captured.full:
            run = self._capture(inputs, key)
        with self.lock:
            if run is None:
                return self._run_once(inputs, names)
            run.write(inputs)
            run.run()
            return list(run.read(names))

    def _run_once(self, inputs: Mapping[str, Data], names: Sequence[str]) -> list[Data]:
        """Run sizes that are not captured; the buffers are freed afterwards."""
        device = self.device
        binding = self.session.io_binding()
        kept: list[np.ndarray[Any, Any]] = []
        for name, value in self._uploaded(inputs, kept).items():
            binding.bind_ortvalue_input(name, value)
        for name in names:
            binding.bind_output(name, device.name, device.index)
        try:
            self.session.run_with_iobinding(binding, run_options(NO_GRAPH))
        except ort_errors() as error:
            raise failure(error, device) from None
        return list(read_values(binding.get_outputs(), device))

    def _uploaded(
        self, inputs: Mapping[str, Data], kept: list[np.ndarray[Any, Any]]
    ) -> dict[str, ort.OrtValue]:
        """Inputs on the device; `kept` are host buffers that are read until it is synchronized."""
        values = {}
        for arg in self.session.get_inputs():
            array = np.asarray(inputs[arg.name], order="C")
            values[arg.name] = value = self.device.empty(array.shape, element_type(arg))
            staging = self.device.host_bytes(array.nbytes)
            np.copyto(staging, array.reshape(-1).view(np.uint8))
            kept.append(staging)
            self.device.copy(value.data_ptr(), staging.ctypes.data, array.nbytes)
        return values

    def _capture(self, inputs: Mapping[str, Data], key: Key) -> FixedRun | None:
        where = ", ".join(f"{dim}={size}" for dim, size in zip(self._dims, key, strict=True))
        with capturing_alone():
            before = self.device.free_bytes()
            kept: list[np.ndarray[Any, Any]] = []
            values = self._uploaded(inputs, kept)
            self.device.synchronize()
            try:
                run = FixedRun(self.session, self.device, values, self.next_id())
                wrong = run.replays_wrongly()
            except AotcError as error:
                if error.code == "AOTC-M004":
                    raise
                self._refuse(error.found, where)
                return None
            if wrong:
                self._refuse(wrong, where)
                return None
            taken = max(before - self.device.free_bytes(), run.bytes)
            for dropped in self._captured.add(key, run, taken):
                sizes = ", ".join(
                    f"{dim}={size}" for dim, size in zip(self._dims, dropped, strict=True)
                )
                self._note(f"the graph for {sizes} was dropped for that of {where}")
            return run

    def _refuse(self, why: str, sizes: str) -> None:
        error = capture_refused(why, f"{self._where}, {sizes}" if sizes else self._where)
        if self._graphs.refused == "fail":
            raise error
        self._note(f"{sizes or 'the call'} runs without a graph: {why}")

    def _note(self, what: str) -> None:
        self._findings.append(Finding(code="AOTC-R024", what=what[:500], where=self._where))

    def _refuse_host_values(self) -> None:
        """Values that the CPU reads at capture would not be read again at replays."""
        session = self.session
        if self.device.name == "cpu":
            return
        for args, infos in (
            (session.get_inputs(), session.get_input_memory_infos()),
            (session.get_outputs(), session.get_output_memory_infos()),
        ):
            for arg, info in zip(args, infos, strict=True):
                if "cpu" in info.name.lower():
                    raise capture_refused(f"the CPU reads or writes {arg.name!r}", self._where)


@contextlib.contextmanager
def capturing_alone() -> Iterator[None]:
    """While a graph is captured, none of our sessions in this process runs."""
    with _CAPTURING, contextlib.ExitStack() as stack:
        for runner in sorted(_RUNNERS, key=id):
            stack.enter_context(runner.lock)
        yield
