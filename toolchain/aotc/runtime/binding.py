"""Bound calls: inputs and outputs that stay on the device."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from aotc.base.errors import AotcError
from aotc.base.registry import Deferred
from aotc.graph.values import numpy_dtype
from aotc.runtime.dlpack import (
    DeviceTensor,
    Exchange,
    Given,
    HostAddress,
    Layout,
    exchange_of,
    take_tensor,
)
from aotc.runtime.guards import Guard
from aotc.runtime.routing import Route, Router
from aotc.runtime.runners import Runner, closed_error
from aotc.session.device.capture_gate import GATE, capture_refused
from aotc.session.device.capturing_runner import CapturingRunner
from aotc.session.device.device import Device, Part, PartOf, Target, row_copies
from aotc.session.device.fixed_run import NO_GRAPH, FixedRun
from aotc.session.padding import Padder

if TYPE_CHECKING:
    import onnxruntime as ort
else:
    ort = Deferred("onnxruntime")


# The default stream of CUDA, on which most libraries work unless they are told otherwise.
_DEFAULT_STREAM = 0


def bind_call(
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    guard: Guard,
    router: Router,
    runners: Sequence[Runner],
    padder: Padder,
    stream: Any,
    carry: Mapping[str, str],
    in_place: Sequence[Mapping[str, str]],
    counted: Callable[[Route, tuple[str, ...]], Counted],
    model: object,
) -> BoundCall:
    """A bound call of the variant that takes such inputs; see `Model.bind`.

    `in_place` has, for each runner, by input the output that may be written where that is.
    `counted` makes what is told the seconds of each call, of its route and of the dims outside the
    proven range.  `model` lives as long as the call.
    """
    # All variants of a model are on one device.
    device = runners[0].device
    # Producers make the stream of the device wait for their values.
    with GATE.used(), device.lock:
        given = {name: take_tensor(name, value, device) for name, value in inputs.items()}
    for name, item in given.items():
        item.refuse_narrow(name)
    checked = guard.check_shapes({name: item.shadow() for name, item in given.items()})
    if checked.inputs.keys() != given.keys():
        raise AotcError(
            "AOTC-R001",
            "a bound call needs all inputs, including optional ones",
            where="inputs",
            expected=", ".join(checked.inputs),
            found=", ".join(given),
        )

    def check_values(tensors: Mapping[str, Given]) -> None:
        """Raise AOTC-R027 for what the host can read of the inputs whose values are stated."""
        found = {
            value.name: tensors[value.name].on_host(device)
            for value in guard.limited
            if value.name in tensors
        }
        guard.check_values(found, checked.sizes)

    if guard.limited:
        check_values(given)
    route = router.route(checked.sizes, checked.outside)
    fills = {fill.name: fill for fill in padder.fills(checked.sizes, route.wanted)}
    shapes: dict[str, tuple[tuple[int, ...], Start, Any]] = {}
    for name, item in given.items():
        fill = fills.get(name)
        if fill is None:
            shapes[name] = (item.shape, (0,) * len(item.shape), None)
        else:
            start = tuple(
                part.indices(size)[0] for part, size in zip(fill.slices, fill.shape, strict=True)
            )
            shapes[name] = (fill.shape, start, fill.value)

    def crop(name: str, shape: Sequence[int]) -> Part | None:
        return padder.crop_slices(name, shape, checked.sizes) if route.pads else None

    return BoundCall(
        runners[route.variant],
        given,
        shapes,
        outputs,
        crop,
        sizes=route.wanted,
        stream=_stream_handle(stream) if device.stream is not None else None,
        carried=_carried(carry, given, runners[route.variant]),
        in_place=in_place[route.variant],
        counted=counted(route, checked.outside),
        check_values=check_values if guard.limited else None,
        limited=frozenset(value.name for value in guard.limited),
        model=model,
    )


def _carried(
    carry: Mapping[str, str], given: Mapping[str, Given], runner: Runner
) -> dict[str, str]:
    """`carry`, whose names are those of inputs and outputs; raises AOTC-R021 and R050 else."""
    if not isinstance(carry, Mapping):
        raise AotcError(
            "AOTC-R021",
            "what is carried is not given by name",
            where="carry",
            expected="a mapping from names of inputs to names of outputs",
            found=type(carry).__name__,
            fix="Pass carry={INPUT: OUTPUT}.",
        )
    outputs = [output.name for output in runner.session.get_outputs()]
    seen: set[str] = set()
    for source, output in carry.items():
        for name, known, what in ((source, given, "input"), (output, outputs, "output")):
            if name not in known:
                raise not_carried(source, output, f"there is no {what} {name}", ", ".join(known))
        if output in seen:
            raise not_carried(source, output, "another input has it", "an output for each input")
        seen.add(output)
    return dict(carry)


def not_carried(source: str, output: str, found: str, expected: str) -> AotcError:
    """AOTC-R050: an input cannot read next what an output holds."""
    return AotcError(
        "AOTC-R050",
        f"output {output!r} cannot be carried to input {source!r}",
        where=f"carry {source}",
        expected=expected,
        found=found,
    )


_AS_IT_IS: Final = "a size that runs as it is"


def _refuse_memory(name: str, output: str, inputs: Mapping[str, BoundInput]) -> None:
    """Raise AOTC-R050 for an input that is padded, or shares memory with another one."""
    bound = inputs[name]
    if bound.padded:
        raise not_carried(name, output, "it is padded", _AS_IT_IS)
    begin, end = bound.target.address, bound.target.address + bound.target.bytes
    for other, each in inputs.items():
        target = each.target
        if other != name and target.address < end and begin < target.address + target.bytes:
            found = f"it shares its memory with input {other!r}"
            raise not_carried(name, output, found, "memory that no other input is in")


def _stream_handle(stream: Any) -> int:
    """CUDA's handle of a stream: of torch, CuPy, `__cuda_stream__`, or the handle itself."""
    if stream is None:
        return _DEFAULT_STREAM
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    raise AotcError(
        "AOTC-R021",
        "the stream is not a CUDA stream",
        where="stream",
        expected="a handle, or a stream of torch or CuPy",
        found=type(stream).__name__,
    )


# A call whose inputs and outputs stay on the device, made once and run many times.


Start = tuple[int, ...]
# An address on the device, a `HostAddress`, or an array of the host.
Source = int | np.ndarray[Any, Any]


class Counted(Protocol):
    """What counts the calls of one route."""

    def __call__(self, seconds: float, /, *, missed_graph: bool) -> None:
        """A call has answered in `seconds`; see `Telemetry.call`."""


class BoundInput:
    """One input: `memory` in the shape that was given, and the `buffer` that the session reads.

    They are the same unless the input is padded: each call copies it to where `start` is then.
    """

    def __init__(
        self, dtype: str, memory: ort.OrtValue, buffer: ort.OrtValue, start: Start, device: Device
    ) -> None:
        self.shape = tuple(memory.shape())
        self.dtype = dtype
        self.memory = memory
        self.buffer = buffer
        self.start = start
        self.target = Target(memory, device)
        self.layout = Layout(dtype, self.shape, device)

    @property
    def padded(self) -> bool:
        """Whether the session reads a larger tensor than the given one."""
        return self.buffer is not self.memory


class _Here(threading.local):
    """The calling thread."""

    # Whether ONNX Runtime captured the graph in it.
    captured = False


class _Turn:
    """A run between fixed buffers.  Where outputs are carried to inputs, two take turns."""

    def __init__(
        self,
        run: FixedRun,
        inputs: Mapping[str, BoundInput],
        limited: frozenset[str],
        device: Device,
    ) -> None:
        self.run = run
        self.inputs = inputs
        self.padded = [bound for bound in inputs.values() if bound.padded]
        self.in_memory = {
            name: Given(bound.shape, bound.dtype, bound.memory, on_device=True)
            for name, bound in inputs.items()
            if name in limited
        }
        self.here = _Here()
        # It was just captured in this thread, if at all.
        self.here.captured = True
        self.read = {name: DeviceTensor(bound.memory, device) for name, bound in inputs.items()}
        self.written = {name: DeviceTensor(value, device) for name, value in run.outputs.items()}

    @property
    def captures_anew(self) -> bool:
        """Whether the calling thread has to capture its graph."""
        return self.run.graph_id != NO_GRAPH and not self.here.captured


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
        carried: Mapping[str, str],
        in_place: Mapping[str, str],
        counted: Counted,
        check_values: Callable[[Mapping[str, Given]], None] | None,
        limited: frozenset[str],
        model: object,
    ) -> None:
        """`shapes` has, by input, the shape that runs, where the given one begins, and the padding.

        `crop` tells which part of an output of such a shape is the caller's (None: all of it).
        `sizes` are those of the dims that run.  `stream` is where the caller writes inputs.
        What the outputs of `carried` hold is what the inputs that they are named by read next: in
        one buffer where `in_place` says so, else in two that take turns.
        `counted` is told the seconds of each call, and `check_values` refuses values of the
        `limited` inputs before it (None: all are allowed).  `model` lives as long as this call
        does: its folder must stay in the store.  Raises AOTC-R024, R050, M004 and R005.
        """
        self._counted = counted
        self._check_values = check_values
        self._model = model
        self._runner = runner
        self._device: Device = runner.device
        self._stream = stream
        # That the stream of most producers is the caller's is known to them: they do nothing then.
        # DLPack names the default stream 1; of the one of each thread, 2, torch knows nothing.
        self._awaited = None if stream in (None, 2) else stream or 1
        self._producers = self._device.stream if self._awaited is None else self._awaited
        self._names = tuple(outputs)
        self._closed = self._left = False
        inputs: dict[str, BoundInput] = {}
        with GATE.used(), self._device.lock:
            if stream is not None:
                self._device.wait_for(stream, first=True)
            for name, item in given.items():
                shape, start, pad = shapes[name]
                memory = (
                    item.value if item.on_device else self._device.empty(item.shape, item.dtype)
                )
                buffer = memory if shape == item.shape else self._filled(shape, item.dtype, pad)
                inputs[name] = BoundInput(item.dtype, memory, buffer, start, self._device)
            sources = [self._write(inputs[name], _source_of(item)) for name, item in given.items()]
            self._pad(inputs.values())
            self._device.synchronize()
            del sources
        for name, output in carried.items():
            _refuse_memory(name, output, inputs)
        # A check changes no memory of the caller.
        checks = not any(
            item.on_device and inputs[name].buffer is item.value for name, item in given.items()
        )
        shared = {name: output for name, output in carried.items() if in_place.get(name) == output}
        swapped = {name: output for name, output in carried.items() if name not in shared}
        # To make a run is to run it once, and more where it is captured.
        stays = {name: inputs[name] for name in carried if given[name].on_device}
        before = {**given, **self._copies(stays)}
        try:
            run = self._first_run(inputs, sizes, shared, checks=checks)
            self._turns = [_Turn(run, inputs, limited, self._device)]
            if swapped:
                self._turns.append(self._swapped(swapped, sizes, shared, limited, checks=checks))
        finally:
            with GATE.used(), self._device.lock:
                sources = [self._write(inputs[name], _source_of(before[name])) for name in carried]
                self._device.synchronize()
                del sources
        self._at = 0
        self._captures = any(turn.run.graph_id != NO_GRAPH for turn in self._turns)
        # Those that capture do so at all sizes.
        self._missed_graph = not self.captured and (
            isinstance(runner, CapturingRunner) or runner.missed_graph(sizes)
        )
        self._cropped = {
            name: self._crop_buffer(name, slices)
            for name in self._names
            if (slices := crop(name, self._turns[0].written[name].shape)) is not None
        }
        for name, output in carried.items():
            if crop(output, self._turns[0].written[output].shape) is not None:
                raise not_carried(name, output, "it is padded", _AS_IT_IS)
        cut = {
            name: DeviceTensor(buffer, self._device) for name, (buffer, _) in self._cropped.items()
        }
        for turn in self._turns:
            turn.written = {name: cut.get(name, turn.written[name]) for name in self._names}

    @property
    def inputs(self) -> dict[str, DeviceTensor]:
        """The memory of the inputs; those that were given on the device are the given ones."""
        return self._turns[self._at].read

    @property
    def outputs(self) -> dict[str, DeviceTensor]:
        """The buffers of the outputs, which each call overwrites."""
        return self._turns[self._at - 1].written

    @property
    def captured(self) -> bool:
        """Whether calls replay a graph."""
        return all(turn.run.graph_id != NO_GRAPH for turn in self._turns)

    def __call__(self, inputs: Mapping[str, Any] | None = None) -> dict[str, DeviceTensor]:
        """Compute the outputs from what the inputs' memory holds, or from `inputs`.

        `inputs` are further tensors of the same shapes and types, which are copied into that
        memory, on the device or from the host.  Raises AOTC-R001, R002, R004, R011, R022, R027 for
        values that the host can read, M004, and R005 if ONNX Runtime fails or the model is closed.
        """
        if self._closed:
            raise closed_error(left=self._left)
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
        captures = self._captures and any(turn.captures_anew for turn in self._turns)
        with GATE.alone() if captures else GATE.used(), self._device.lock:
            # Another thread's call may have ended just now.
            turn = self._turns[self._at]
            held: list[Any] = []
            given = self._taken(turn, inputs or {}, held)
            if self._stream is not None:
                # After the producers of what is given made this stream wait for it.
                self._device.wait_for(self._stream)
            try:
                # What is read until the run has ended, which awaits the copies.
                if len(given) > 1:
                    given = self._apart(given, held)
                sources = [self._write(*each) for each in given]
                self._pad(turn.padded)
                if turn.run.graph_id == NO_GRAPH:
                    # A session that captures nothing has streams of its own.
                    self._device.synchronize()
                turn.run.run()
            except BaseException:
                self._device.settle()
                raise
            del sources, held
            if self._cropped:
                self._crop(turn.run)
            self._at = (self._at + 1) % len(self._turns)
        if captures:
            turn.here.captured = True
        self._counted(time.perf_counter() - started, missed_graph=self._missed_graph)
        return turn.written

    def close(self) -> None:
        """Refuse further calls; the memory is freed when nobody uses it any more."""
        self._closed = True

    def leave_to_parent(self) -> None:
        """In a forked child: refuse calls, as the model does."""
        self._left = not self._closed
        self._closed = True

    def _fixed_run(
        self,
        inputs: Mapping[str, BoundInput],
        sizes: Mapping[str, int],
        into: Mapping[str, ort.OrtValue],
        shared: Mapping[str, str],
        *,
        checks: bool,
    ) -> FixedRun:
        """The run, captured where the variant captures graphs and its profile does not say `run`.

        Outputs `into` are in that memory, and `shared` ones in that of the input that they are
        named by.  With `checks` the buffers may be changed to compare a replay with a run without a
        graph; otherwise a size that was not compared yet is compared in other buffers.
        """
        device, runner = self._device, self._runner
        buffers = {name: bound.buffer for name, bound in inputs.items()}

        def run(
            session: ort.InferenceSession, values: Mapping[str, ort.OrtValue], *graph: int
        ) -> FixedRun:
            fixed = into if values is buffers else {}
            own = {output: values[name] for name, output in shared.items()}
            return FixedRun(session, device, values, *graph, into={**fixed, **own})

        if isinstance(runner, CapturingRunner):
            runner.require_accepted(sizes)
        if not isinstance(runner, CapturingRunner) or not runner.may_capture(sizes):
            with GATE.used(), device.lock:
                return run(runner.session, buffers)
        with GATE.alone(), device.lock:
            try:
                session = runner.session_of(sizes)
                found = run(session, buffers, runner.next_id())
                wrong = ""
                if checks:
                    wrong = found.replays_wrongly()
                elif not runner.has_captured(sizes):
                    copies = {name: item.value for name, item in self._copies(inputs).items()}
                    wrong = run(session, copies, runner.next_id()).replays_wrongly()
            except AotcError as error:
                if error.code != "AOTC-R024":
                    raise
                wrong = error.found
            if wrong and runner.graphs.on_refusal == "fail":
                raise capture_refused(wrong, runner.where)
            if wrong:
                runner.note(f"a bound call runs without a graph: {wrong}")
                return run(runner.session, buffers)
        runner.on_capture()
        return found

    def _swapped(
        self,
        swapped: Mapping[str, str],
        sizes: Mapping[str, int],
        shared: Mapping[str, str],
        limited: frozenset[str],
        *,
        checks: bool,
    ) -> _Turn:
        """The turn that reads what the first one wrote of `swapped`, and writes what it read."""
        first = self._turns[0]
        inputs, into = dict(first.inputs), dict(first.run.outputs)
        for name, output in swapped.items():
            bound, written = first.inputs[name], first.written[output]
            if (bound.dtype, bound.shape) != (written.dtype, written.shape):
                found = f"{written.dtype}{list(written.shape)}"
                raise not_carried(name, output, found, f"{bound.dtype}{list(bound.shape)}")
            start = (0,) * len(bound.shape)
            inputs[name] = BoundInput(
                bound.dtype, written.value, written.value, start, self._device
            )
            into[output] = bound.memory
        run = self._fixed_run(inputs, sizes, into, shared, checks=checks)
        return _Turn(run, inputs, limited, self._device)

    def _first_run(
        self,
        inputs: Mapping[str, BoundInput],
        sizes: Mapping[str, int],
        shared: Mapping[str, str],
        *,
        checks: bool,
    ) -> FixedRun:
        """The run of the given inputs; AOTC-R050 if a shared output has another shape than its."""
        try:
            return self._fixed_run(inputs, sizes, {}, shared, checks=checks)
        except AotcError:
            if not shared:
                raise
            buffers = {name: bound.buffer for name, bound in inputs.items()}
            with GATE.used(), self._device.lock:
                alone = FixedRun(self._runner.session, self._device, buffers)
            for name, output in shared.items():
                found, wanted = alone.outputs[output].shape(), buffers[name].shape()
                if found != wanted:
                    raise not_carried(name, output, str(found), str(wanted)) from None
            raise

    def _copies(self, inputs: Mapping[str, BoundInput]) -> dict[str, Given]:
        """Their buffers in other memory."""
        copies = {}
        with GATE.used(), self._device.lock:
            for name, bound in inputs.items():
                shape = tuple(bound.buffer.shape())
                copy = self._device.empty(shape, bound.dtype)
                count = copy.tensor_size_in_bytes()
                self._device.copy(copy.data_ptr(), bound.buffer.data_ptr(), count)
                copies[name] = Given(shape, bound.dtype, copy, on_device=True)
            self._device.synchronize()
        return copies

    def _filled(self, shape: tuple[int, ...], dtype: str, pad: Any) -> ort.OrtValue:
        value = self._device.empty(shape, dtype)
        memory = self._device.host_bytes(value.tensor_size_in_bytes())
        memory.view(numpy_dtype(dtype))[...] = pad
        self._device.copy(value.data_ptr(), memory.ctypes.data, memory.nbytes)
        self._device.synchronize()
        return value

    def _taken(
        self, turn: _Turn, inputs: Mapping[str, Any], held: list[Any]
    ) -> list[tuple[BoundInput, Source]]:
        """Where each of the further tensors is; nothing is written before all are known to fit.

        Most are read at once.  What is not plainly an input's type and shape, and what has stated
        values, is looked at as `bind` does, which says what is wrong.  What is added to `held`
        keeps the tensors where they are.
        """
        taken: list[tuple[BoundInput, Source]] = []
        limited: dict[str, Given] = {}
        exchanges: set[Exchange] = set()
        for name, value in inputs.items():
            bound = turn.inputs.get(name)
            source: Source | None = None
            if bound is not None and name not in turn.in_memory:
                if type(value) is np.ndarray:
                    source = value if bound.layout.is_of(value) else None
                else:
                    # A mapping may make each when it is asked.
                    held.append(value)
                    source = bound.layout.address_of(value, self._producers, held)
                    if type(source) is int and self._stream is not None:
                        exchange = exchange_of(type(value))
                        if exchange is not None:
                            exchanges.add(exchange)
            if bound is None or source is None:
                bound, limited[name] = self._checked(turn, name, value)
                source = _source_of(limited[name])
                held.append(limited[name])
            taken.append((bound, source))
        if self._check_values is not None:
            self._check_values({**turn.in_memory, **limited})
        for exchange in exchanges:
            self._device.wait_for(exchange.stream(self._device))
        return taken

    def _checked(self, turn: _Turn, name: str, value: Any) -> tuple[BoundInput, Given]:
        bound = turn.inputs.get(name)
        if bound is None:
            raise AotcError(
                "AOTC-R001",
                f"the call has no input {name!r}",
                where="inputs",
                expected=", ".join(turn.inputs),
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
        return bound, item

    def _apart(
        self, given: list[tuple[BoundInput, Source]], held: list[Any]
    ) -> list[tuple[BoundInput, Source]]:
        """The sources, copied first if one is the memory that another input is copied to."""
        addresses = {source for _, source in given if type(source) is int}
        if not addresses or addresses.isdisjoint([bound.target.address for bound, _ in given]):
            return given
        found: list[tuple[BoundInput, Source]] = []
        for bound, source in given:
            if type(source) is int and source != bound.target.address:
                copy = self._device.empty(bound.shape, bound.dtype)
                self._device.copy(copy.data_ptr(), source, bound.target.bytes)
                held.append(copy)
                source = int(copy.data_ptr())
            found.append((bound, source))
        return found

    def _write(self, bound: BoundInput, source: Source) -> object:
        """Copy it to the input's memory; what is returned is read until the device is awaited."""
        if isinstance(source, np.ndarray):
            return bound.target.write(source)
        if isinstance(source, HostAddress):
            bound.target.send(source)
        else:
            bound.target.copy(source)
        return None

    def _pad(self, inputs: Iterable[BoundInput]) -> None:
        """Copy what the inputs' memory holds into the larger buffers of padded ones."""
        for bound in inputs:
            if not bound.padded:
                continue
            full = tuple(bound.buffer.shape())
            target, source = bound.buffer.data_ptr(), bound.memory.data_ptr()
            origin = (0,) * len(full)
            for part in row_copies(
                bound.shape, full, bound.shape, bound.start, origin, _item_bytes(bound.buffer)
            ):
                self._device.copy_rows(target + part.target, source + part.source, part.rows)

    def _crop_buffer(self, name: str, slices: Part) -> tuple[ort.OrtValue, Start]:
        output = self._turns[0].written[name]
        ranges = [part.indices(size) for part, size in zip(slices, output.shape, strict=True)]
        shape = [stop - start for start, stop, _ in ranges]
        return self._device.empty(shape, output.dtype), tuple(start for start, _, _ in ranges)

    def _crop(self, run: FixedRun) -> None:
        for name, (buffer, start) in self._cropped.items():
            full = run.outputs[name]
            shape = tuple(buffer.shape())
            origin = (0,) * len(shape)
            for part in row_copies(
                shape, shape, tuple(full.shape()), origin, start, _item_bytes(full)
            ):
                self._device.copy_rows(
                    buffer.data_ptr() + part.target, full.data_ptr() + part.source, part.rows
                )
        self._device.synchronize()


def _source_of(item: Given) -> Source:
    found: Source = int(item.value.data_ptr()) if item.on_device else item.value
    return found


def _item_bytes(value: ort.OrtValue) -> int:
    count = int(np.prod(value.shape(), dtype=np.int64))
    return int(value.tensor_size_in_bytes()) // count if count else 1
