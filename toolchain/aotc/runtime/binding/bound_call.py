"""A call whose inputs and outputs stay on the device, made once and run many times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aotc.engine.device.capture_gate import GATE
from aotc.engine.device.capturing_runner import CapturingRunner
from aotc.engine.device.device import Device
from aotc.engine.device.fixed_run import NO_GRAPH, FixedRun
from aotc.engine.device.host_arrays import Part, PartOf
from aotc.engine.device.refused_capture import capture_refused
from aotc.engine.device.regions import row_copies
from aotc.errors import AotcError
from aotc.runtime.binding.device_tensor import DeviceTensor
from aotc.runtime.binding.given_tensors import Given, take_tensor

if TYPE_CHECKING:
    import onnxruntime as ort

    from aotc.runtime.runners import Runner

Start = tuple[int, ...]


class BoundInput:
    """One input: `memory` in the shape that was given, and the `buffer` that the session reads.

    They are the same unless the input is padded: each call copies it to where `start` is then.
    """

    def __init__(
        self, dtype: str, memory: ort.OrtValue, buffer: ort.OrtValue, start: Start
    ) -> None:
        self.shape = tuple(memory.shape())
        self.dtype = dtype
        self.memory = memory
        self.buffer = buffer
        self.start = start

    @property
    def padded(self) -> bool:
        """Whether the session reads a larger tensor than the given one."""
        return self.buffer is not self.memory


class _Here(threading.local):
    """The calling thread."""

    # Whether ONNX Runtime captured the graph in it.
    captured = False


class BoundCall:
    """Inputs and outputs in fixed memory; `call()` computes the outputs from what they hold.

    Calls are complete when they return.  It may be called from any thread, one at a time; captured
    graphs belong to a thread, so that another one than that which bound it captures anew.
    """

    def __init__(
        self,
        runner: Runner,
        given: Mapping[str, Given],
        shapes: Mapping[str, tuple[tuple[int, ...], Start, Any]],
        outputs: Sequence[str],
        crop: PartOf,
        *,
        sizes: Mapping[str, int],
        stream: int | None,
        counted: Callable[[float], None],
        model: object,
    ) -> None:
        """`shapes` has, by input, the shape that runs, where the given one begins, and the padding.

        `crop` tells which part of an output of such a shape is the caller's (None: all of it).
        `sizes` are those of the dims that run.  `stream` is where the caller writes inputs.
        `counted` is told the seconds of each call.  `model` lives as long as this call does: its
        folder must stay in the store.  Raises AOTC-R024, M004 and R005.
        """
        self._counted = counted
        self._model = model
        self._runner = runner
        self._device: Device = runner.device
        self._stream = stream
        # That the stream of most producers is the caller's is known to them: they do nothing then.
        # DLPack names the default stream 1; of the one of each thread, 2, torch knows nothing.
        self._awaited = None if stream in (None, 2) else stream or 1
        self._names = tuple(outputs)
        self._closed = False
        self._inputs: dict[str, BoundInput] = {}
        with GATE.used(), self._device.lock:
            if stream is not None:
                self._device.wait_for(stream, first=True)
            for name, item in given.items():
                shape, start, pad = shapes[name]
                memory = (
                    item.value if item.on_device else self._device.empty(item.shape, item.dtype)
                )
                buffer = memory if shape == item.shape else self._filled(shape, item.dtype, pad)
                self._inputs[name] = BoundInput(item.dtype, memory, buffer, start)
            self._padded = [bound for bound in self._inputs.values() if bound.padded]
            for name, item in given.items():
                self._write(name, item)
            self._pad()
            self._device.synchronize()
        buffers = {name: bound.buffer for name, bound in self._inputs.items()}
        self._here = _Here()
        self._run = self._fixed_run(runner, buffers, sizes, checks=self._owns_inputs(given))
        self._cropped = {
            name: self._crop_buffer(name, slices)
            for name in self._names
            if (slices := crop(name, tuple(self._run.outputs[name].shape()))) is not None
        }
        self.inputs = {
            name: DeviceTensor(bound.memory, self._device) for name, bound in self._inputs.items()
        }
        """The memory of the inputs; those that were given on the device are the given ones."""
        self.outputs = {
            name: DeviceTensor(
                self._cropped[name][0] if name in self._cropped else self._run.outputs[name],
                self._device,
            )
            for name in self._names
        }
        """The buffers of the outputs, which each call overwrites."""

    @property
    def captured(self) -> bool:
        """Whether calls replay a graph."""
        return self._run.graph_id != NO_GRAPH

    def __call__(self, inputs: Mapping[str, Any] | None = None) -> dict[str, DeviceTensor]:
        """Compute the outputs from what the inputs' memory holds, or from `inputs`.

        `inputs` are further tensors of the same shapes and types, which are copied into that
        memory, on the device or from the host.  Raises AOTC-R001, R002, R004, R011, R022, M004, and
        R005 if ONNX Runtime fails or the model is closed.
        """
        if self._closed:
            raise AotcError("AOTC-R005", "the model is closed", fix="Load it again.")
        if inputs is not None and not isinstance(inputs, Mapping):
            raise AotcError(
                "AOTC-R021",
                "the inputs are not given by name",
                where="inputs",
                expected="a mapping from names to tensors, or nothing",
                found=type(inputs).__name__,
            )
        started = time.perf_counter()
        # In a thread that has not run it yet, ONNX Runtime captures the graph anew.
        captured = self._run.graph_id != NO_GRAPH
        captures = captured and not self._here.captured
        with GATE.alone() if captures else GATE.used(), self._device.lock:
            given = [(n, self._checked(n, value)) for n, value in (inputs or {}).items()]
            if self._stream is not None:
                # After the producers of what is given made this stream wait for it.
                self._device.wait_for(self._stream)
            for name, item in given:
                self._write(name, item)
            self._pad()
            if not captured:
                # A session that captures nothing has streams of its own.
                self._device.synchronize()
            self._run.run()
            if self._cropped:
                self._crop()
        if captures:
            self._here.captured = True
        self._counted(time.perf_counter() - started)
        return self.outputs

    def close(self) -> None:
        """Refuse further calls; the memory is freed when nobody uses it any more."""
        self._closed = True

    def _fixed_run(
        self,
        runner: Runner,
        buffers: Mapping[str, ort.OrtValue],
        sizes: Mapping[str, int],
        *,
        checks: bool,
    ) -> FixedRun:
        """The run, captured where the variant captures graphs and its profile does not say `run`.

        With `checks` the buffers may be changed to compare a replay with a run without a graph;
        otherwise a size that was not compared yet is compared in other buffers.
        """
        device, session = self._device, runner.session
        if not isinstance(runner, CapturingRunner) or not runner.may_capture(sizes):
            with GATE.used(), device.lock:
                return FixedRun(session, device, buffers)
        with GATE.alone(), device.lock:
            try:
                run = FixedRun(session, device, buffers, runner.next_id())
                wrong = ""
                if checks:
                    wrong = run.replays_wrongly()
                elif not runner.has_captured(sizes):
                    wrong = FixedRun(
                        session, device, self._copies(buffers), runner.next_id()
                    ).replays_wrongly()
            except AotcError as error:
                if error.code != "AOTC-R024":
                    raise
                wrong = error.found
            if wrong and runner.graphs.refused == "fail":
                raise capture_refused(wrong, runner.where)
            if wrong:
                runner.note(f"a bound call runs without a graph: {wrong}")
                return FixedRun(session, device, buffers)
        self._here.captured = True
        return run

    def _copies(self, buffers: Mapping[str, ort.OrtValue]) -> dict[str, ort.OrtValue]:
        copies = {}
        for name, value in buffers.items():
            copies[name] = copy = self._device.empty(value.shape(), self._inputs[name].dtype)
            self._device.copy(copy.data_ptr(), value.data_ptr(), value.tensor_size_in_bytes())
        return copies

    def _owns_inputs(self, given: Mapping[str, Given]) -> bool:
        """Whether no input is in the caller's memory, which a check must not change."""
        return all(
            not item.on_device or self._inputs[name].buffer is not item.value
            for name, item in given.items()
        )

    def _filled(self, shape: tuple[int, ...], dtype: str, pad: Any) -> ort.OrtValue:
        from aotc.engine.values import numpy_dtype

        value = self._device.empty(shape, dtype)
        memory = self._device.host_bytes(value.tensor_size_in_bytes())
        memory.view(numpy_dtype(dtype))[...] = pad
        self._device.copy(value.data_ptr(), memory.ctypes.data, memory.nbytes)
        self._device.synchronize()
        return value

    def _checked(self, name: str, value: Any) -> Given:
        bound = self._inputs.get(name)
        if bound is None:
            raise AotcError(
                "AOTC-R001",
                f"the call has no input {name!r}",
                where="inputs",
                expected=", ".join(self._inputs),
                found=name,
            )
        item = take_tensor(name, value, self._device, self._awaited)
        if item.dtype != bound.dtype:
            raise AotcError(
                "AOTC-R002",
                f"input {name!r} has the wrong type",
                where=f"input {name}",
                expected=bound.dtype,
                found=item.dtype,
            )
        if item.shape != bound.shape:
            raise AotcError(
                "AOTC-R004",
                f"input {name!r} has another shape than the one that was bound",
                where=f"input {name}",
                expected=str(list(bound.shape)),
                found=str(list(item.shape)),
                fix="Bind a call for each shape.",
            )
        return item

    def _write(self, name: str, item: Given) -> None:
        bound = self._inputs[name]
        if item.value is bound.memory:
            return
        target = bound.memory.data_ptr()
        if item.on_device:
            source = item.value.data_ptr()
            self._device.copy(target, source, bound.memory.tensor_size_in_bytes())
            return
        source = self._device.upload(target, item.value)
        self._device.synchronize()
        # It was read until here.
        del source

    def _pad(self) -> None:
        """Copy what the inputs' memory holds into the larger buffers of padded ones."""
        for bound in self._padded:
            full = tuple(bound.buffer.shape())
            target, source = bound.buffer.data_ptr(), bound.memory.data_ptr()
            origin = (0,) * len(full)
            for part in row_copies(
                bound.shape, full, bound.shape, bound.start, origin, _item_bytes(bound.buffer)
            ):
                self._device.copy_rows(target + part.target, source + part.source, part.rows)

    def _crop_buffer(self, name: str, slices: Part) -> tuple[ort.OrtValue, Start]:
        output = DeviceTensor(self._run.outputs[name], self._device)
        ranges = [part.indices(size) for part, size in zip(slices, output.shape, strict=True)]
        shape = [stop - start for start, stop, _ in ranges]
        return self._device.empty(shape, output.dtype), tuple(start for start, _, _ in ranges)

    def _crop(self) -> None:
        for name, (buffer, start) in self._cropped.items():
            full = self._run.outputs[name]
            shape = tuple(buffer.shape())
            origin = (0,) * len(shape)
            for part in row_copies(
                shape, shape, tuple(full.shape()), origin, start, _item_bytes(full)
            ):
                self._device.copy_rows(
                    buffer.data_ptr() + part.target, full.data_ptr() + part.source, part.rows
                )
        self._device.synchronize()


def _item_bytes(value: ort.OrtValue) -> int:
    count = int(np.prod(value.shape(), dtype=np.int64))
    return int(value.tensor_size_in_bytes()) // count if count else 1
