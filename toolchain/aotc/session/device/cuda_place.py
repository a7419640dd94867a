"""Where a process wants its CUDA sessions, and how those that capture graphs are opened."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from aotc.base.errors import AotcError
from aotc.host.nvidia import make_context, make_stream
from aotc.session.device.capture_gate import GATE, capture_refused
from aotc.spec.providers import CAPTURING, GRAPH_OPTION
from aotc.spec.variant import GraphCapture

if TYPE_CHECKING:
    import onnxruntime as ort

    from aotc.graph.values import Data
    from aotc.session.device.capturing_runner import CapturingRunner
    from aotc.session.device.device import Device


Settings = Mapping[str, Mapping[str, str]]
# The beginning of ONNX Runtime's message if it cannot capture a graph at all.
_NO_CAPTURE: Final = "This session cannot use the graph capture feature"
# CUDA's default stream, as null and by its own handle (cudaStreamLegacy): nothing can be captured
# on it, and ONNX Runtime takes the first for no stream at all.  And cudaStreamPerThread, which is
# another one in each thread; the default one waits for it.
_DEFAULT_STREAMS: Final = (0, 1, 2)


# The process that used CUDA first, of this one and those that it was forked from.
_user: int | None = None


def _use_cuda() -> None:
    """Raise AOTC-R035 where that is another process: CUDA does not work in a forked child."""
    global _user
    _user = _user or os.getpid()
    if _user != os.getpid():
        raise AotcError(
            "AOTC-R035",
            "this process was forked from one that had used CUDA",
            expected="CUDA to be used in the child alone",
            found=f"it was used in process {_user}",
        )


class CudaPlace:
    """Where a model's CUDA sessions are: the GPU's index, and a stream of the caller's.

    All sessions of one model share one device, and so one stream.  The default stream is none that
    they could be on: they have one of their own, and bound calls wait for the default one.
    """

    def __init__(self, index: int = 0, stream: int | None = None) -> None:
        self.index = index
        self.stream = None if stream in _DEFAULT_STREAMS else stream
        self._lock = threading.Lock()
        self._device: Device | None = None
        self._made: int | None = None

    def begin(self) -> None:
        """Make the GPU's context, and a stream unless it is the caller's; what fails is left out.

        Sessions need no more of the device.  The driver needs no lock of the interpreter.
        """
        _use_cuda()
        if self.stream is None:
            self._made = make_stream(self.index)
        else:
            make_context(self.index)

    def device(self) -> Device:
        """The device; raises AOTC-R025 (there is none of this index), R035, I019 and M004."""
        _use_cuda()
        from aotc.session.device.cuda_device import CudaDevice

        with self._lock:
            if self._device is None:
                self._device = CudaDevice(self.index, stream=self.stream, made=self._made)
            return self._device

    def close(self) -> None:
        """Free page-locked memory that is not in use."""
        if self._device is not None:
            with GATE.used(), self._device.lock:
                self._device.close()

    def settings(self, *, capturing: bool = False) -> dict[str, dict[str, str]]:
        """Provider options of a session here; `capturing` is on the stream of the device.

        Then it raises what `device` does, unless `begin` has made the stream; and else AOTC-R035.
        """
        _use_cuda()
        options = {"device_id": str(self.index)} if self.index else {}
        stream = self.stream
        if capturing:
            stream = self._made or self.device().stream
            options |= {GRAPH_OPTION: "1"}
        if stream is not None:
            options |= {"has_user_compute_stream": "1", "user_compute_stream": str(stream)}
        return {CAPTURING.ort_name: options} if options else {}


def open_capturing(
    graphs: GraphCapture,
    placed: CudaPlace,
    opener: Callable[[Settings], ort.InferenceSession],
    where: str,
) -> CapturingRunner:
    """A runner with the session that `opener` creates with such provider options.

    Raises AOTC-R024 if ONNX Runtime captures no graph of the model, R025, I019, and what `opener`
    raises.
    """
    from aotc.session.device.capturing_runner import CapturingRunner

    settings = placed.settings(capturing=True)
    try:
        with GATE.used():
            session = opener(settings)
        # NVIDIA's bindings may be imported until here.
        further = partial(opener, settings)
        return CapturingRunner(session, placed.device(), graphs, where, further)
    except AotcError as error:
        if _NO_CAPTURE in error.found:
            raise capture_refused(error.found, where) from None
        raise


def captured_run(
    opener: Callable[[Settings], ort.InferenceSession], inputs: Mapping[str, Data], where: str
) -> CapturingRunner:
    """A runner that captured a run with these host arrays, and replays it.

    `opener` creates the session with such options of providers.  Raises AOTC-R024, R025, I019 and
    M004, and what `opener` raises.
    """
    # No dim is named, so that all calls are of the captured sizes.
    runner = open_capturing(GraphCapture(sizes=({},)), CudaPlace(), opener, where)
    try:
        runner.capture(inputs, {})
    except BaseException:
        runner.close()
        raise
    return runner
