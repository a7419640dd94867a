"""Runs of a session whose inputs and outputs stay in the same memory, by captured size."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.graph.values import tensor_type
from aotc.providers.ort import import_onnxruntime, ort_errors
from aotc.session.device.capture_gate import capture_refused
from aotc.session.device.device import Device, PartOf, Target, read_values

if TYPE_CHECKING:
    import onnxruntime as ort


_GRAPH_ID: Final = "gpu_graph_id"
_NO_WAIT: Final = "disable_synchronize_execution_providers"
# Of a run that neither captures nor replays.
NO_GRAPH: Final = -1
# How far a replay may be from a run without a graph, of the largest value.
_REPLAY_TOLERANCE: Final = 1e-2
# Of elements that are compared at once.
_COMPARED: Final = 1 << 18
Key = tuple[int, ...]
# ONNX Runtime frees no captured graph before its session: this bounds what dropped ones leave.
_MAX_DROPPED: Final = 256


def run_options(graph_id: int, *, waits: bool = True) -> Any:
    """Options of a run that captures or replays the graph `graph_id`, or `NO_GRAPH`.

    Unless it `waits`, what the run computes may be awaited on the session's stream.
    """
    options = import_onnxruntime().RunOptions()
    options.add_run_config_entry(_GRAPH_ID, str(graph_id))
    if not waits:
        options.add_run_config_entry(_NO_WAIT, "1")
    return options


def element_type(arg: Any) -> str:
    """The element type of a session's input or output, which is a tensor."""
    return tensor_type(arg.type)


class FixedRun:
    """One combination of sizes: buffers for inputs and outputs, and a graph if one is captured.

    Not thread-safe.  Calls of one run have to come from one thread if it has a graph: another
    thread would capture anew.
    """

    def __init__(
        self,
        session: ort.InferenceSession,
        device: Device,
        inputs: Mapping[str, ort.OrtValue],
        graph_id: int = NO_GRAPH,
        *,
        into: Mapping[str, ort.OrtValue] | None = None,
    ) -> None:
        """Run once, which allocates the outputs, and capture the graph unless it is `NO_GRAPH`.

        `inputs` hold values that the model accepts, and no copy to them is on its way.  Outputs
        named in `into` have that memory, which may be an input's where the graph's operators write
        in place.  Raises AOTC-M004, R005, R036, and R024 if it runs, and no graph can be captured.
        """
        self.graph_id = graph_id
        self.inputs = dict(inputs)
        self._session = session
        self._device = device
        self._binding = session.io_binding()
        self._options = run_options(graph_id)
        self._unawaited = run_options(graph_id, waits=False)
        self._targets = {name: Target(value, device) for name, value in self.inputs.items()}
        # What is read until the device is synchronized.
        self._sources: list[np.ndarray[Any, Any]] = []
        names = [output.name for output in session.get_outputs()]
        try:
            for name, value in inputs.items():
                self._binding.bind_ortvalue_input(name, value)
            fixed = into or {}
            for name in names:
                if name in fixed:
                    self._binding.bind_ortvalue_output(name, fixed[name])
                else:
                    self._binding.bind_output(name, device.name, device.index)
            session.run_with_iobinding(self._binding, run_options(NO_GRAPH))
            found = dict(zip(names, self._binding.get_outputs(), strict=True))
            self.outputs: dict[str, ort.OrtValue] = {**found, **fixed}
            for name, value in self.outputs.items():
                self._binding.bind_ortvalue_output(name, value)
        except ort_errors() as error:
            raise device.failure(error) from None
        try:
            if graph_id != NO_GRAPH:
                session.run_with_iobinding(self._binding, self._options)
        except ort_errors() as error:
            failed = device.failure(error)
            refused = failed.code == "AOTC-R005"
            raise (capture_refused(failed.found, "") if refused else failed) from None
        self._shapes = {name: tuple(value.shape()) for name, value in self.inputs.items()}

    @property
    def bytes(self) -> int:
        """The memory of its buffers."""
        buffers = (*self.inputs.values(), *self.outputs.values())
        return sum(value.tensor_size_in_bytes() for value in buffers)

    def fits(self, arrays: Mapping[str, Any]) -> bool:
        """Whether arrays have the shapes of the buffers."""
        return all(arrays[name].shape == shape for name, shape in self._shapes.items())

    def run(self) -> None:
        """Compute the outputs from what the inputs hold now; done when it returns.

        Raises AOTC-M004 and R005.
        """
        self._run(self._options)

    def answer(
        self,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        names: Sequence[str],
        part_of: PartOf | None = None,
        *,
        timed: Callable[[float], object] | None = None,
    ) -> list[np.ndarray[Any, Any]]:
        """`write`, `run` and `read`, of a session on the device's stream, which is awaited once.

        To tell `timed` the seconds of the copies alone, each of the three is awaited.  Raises
        AOTC-M004, R005 and R058.
        """
        try:
            if timed is not None:
                return self._timed(arrays, names, part_of, timed)
            self.write(arrays)
            self._run(self._unawaited)
            return self.read(names, part_of)
        except BaseException:
            self._device.settle()
            self._sources.clear()
            raise

    def _timed(
        self,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        names: Sequence[str],
        part_of: PartOf | None,
        timed: Callable[[float], object],
    ) -> list[np.ndarray[Any, Any]]:
        started = time.perf_counter()
        self.write(arrays)
        self._device.synchronize()
        wrote = time.perf_counter()
        self._run(self._options)
        ran = time.perf_counter()
        found = self.read(names, part_of)
        timed(wrote - started + time.perf_counter() - ran)
        return found

    def _run(self, options: Any) -> None:
        try:
            self._session.run_with_iobinding(self._binding, options)
        except ort_errors() as error:
            raise self._device.failure(error) from None

    def run_without_graph(self) -> None:
        """The same, without replaying."""
        self._run(run_options(NO_GRAPH))

    def write(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Copy host arrays of the buffers' own types and shapes into the inputs, in C order."""
        for name, array in arrays.items():
            self._sources.append(self._targets[name].write(array))

    def read(
        self, names: Sequence[str], part_of: PartOf | None = None
    ) -> list[np.ndarray[Any, Any]]:
        """The named outputs as host arrays that are the caller's; one synchronization.

        Of an output, `part_of` says which part is wanted; all of it may be read all the same.
        """
        values = [self.outputs[name] for name in names]
        parts = [
            None if part_of is None else part_of(name, value.shape())
            for name, value in zip(names, values, strict=True)
        ]
        found = read_values(values, self._device, parts)
        self._sources.clear()
        return found

    def replays_wrongly(self) -> str:
        """Why a replay does not compute what a run without a graph does; "" if it does.

        Values that the CPU read while the graph was captured are not read again when it is
        replayed.  So the inputs are changed: their elements are moved by one place.
        """
        values = read_values(list(self.inputs.values()), self._device)
        kept = dict(zip(self.inputs, values, strict=True))
        self.write({name: np.roll(array, 1) for name, array in kept.items()})
        names = list(self.outputs)
        try:
            self._device.synchronize()
            self.run()
            replayed = self.read(names)
            self.run_without_graph()
            computed = self.read(names)
        finally:
            self.write(kept)
            self._device.synchronize()
            self._sources.clear()
        for name, found, expected in zip(names, replayed, computed, strict=True):
            if not agree(found, expected):
                return f"output {name!r} does not follow its inputs when the graph is replayed"
        return ""


def agree(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> bool:
    """Whether a replay's output is near enough to that of a run without a graph."""
    if found.shape != expected.shape:
        return False
    flat, wanted = found.reshape(-1), expected.reshape(-1)
    # As a rule: the same kernels ran, in the same order.
    if np.array_equal(flat.view(np.uint8), wanted.view(np.uint8)):
        return True
    if found.dtype.kind in "biu":
        # Ties may be broken otherwise.
        return bool((found == expected).mean() > 0.9)
    largest = worst = 0.0
    for at in range(0, flat.size, _COMPARED):
        left, right = (each[at : at + _COMPARED].astype(np.float64) for each in (flat, wanted))
        finite = np.isfinite(right)
        if not np.array_equal(finite, np.isfinite(left)):
            return False
        if not np.array_equal(left[~finite], right[~finite], equal_nan=True):
            return False
        largest = max(largest, float(np.abs(right[finite]).max(initial=0.0)))
        worst = max(worst, float(np.abs(left[finite] - right[finite]).max(initial=0.0)))
    return worst <= _REPLAY_TOLERANCE * largest


class CapturedSizes:
    """Captured runs by their sizes; not thread-safe."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._runs: OrderedDict[Key, tuple[FixedRun, int]] = OrderedDict()
        self.bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, key: Key) -> bool:
        return key in self._runs

    def __iter__(self) -> Iterator[Key]:
        """Sizes, the least recently used first."""
        return iter(tuple(self._runs))

    @property
    def full(self) -> bool:
        """Whether no further size may be captured, not even in place of another."""
        return self.dropped >= _MAX_DROPPED

    def get(self, key: Key) -> FixedRun | None:
        """The run of these sizes, which is now the most recently used."""
        found = self._runs.get(key)
        if found is None:
            return None
        self._runs.move_to_end(key)
        return found[0]

    def add(self, key: Key, run: FixedRun, count: int) -> tuple[Key, ...]:
        """Keep a run that takes `count` bytes; the sizes that were dropped for it."""
        self.discard(key)
        self._runs[key] = (run, count)
        self.bytes += count
        dropped = []
        while len(self._runs) > 1 and (
            len(self._runs) > self._max_count or self.bytes > self._max_bytes
        ):
            oldest, (_, freed) = self._runs.popitem(last=False)
            self.bytes -= freed
            dropped.append(oldest)
        self.dropped += len(dropped)
        return tuple(dropped)

    def discard(self, key: Key) -> None:
        """Forget the run of these sizes, if there is one."""
        _, freed = self._runs.pop(key, (None, 0))
        self.bytes -= freed

    def clear(self) -> None:
        """Forget all runs, whose buffers are freed."""
        self._runs.clear()
        self.bytes = 0
