"""Where a process wants its CUDA sessions, and how sessions that capture graphs are opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from aotc.contract.known_providers import CAPTURING, GRAPH_OPTION
from aotc.contract.manifest.graph_capture import GraphCapture
from aotc.engine.device.refused_capture import capture_refused
from aotc.errors import AotcError
from aotc.records import record

if TYPE_CHECKING:
    import onnxruntime as ort

    from aotc.engine.device.capturing_runner import CapturingRunner
    from aotc.engine.device.device import Device

Settings = Mapping[str, Mapping[str, str]]
# The beginning of ONNX Runtime's message if it cannot capture a graph at all.
_NO_CAPTURE: Final = "This session cannot use the graph capture feature"


@record
class CudaPlace:
    """Where a process wants its CUDA sessions: the GPU's index, and a stream of the caller's."""

    index: int = 0
    stream: int | None = None

    def device(self) -> Device:
        """The device; raises AOTC-R025 (there is none of this index), I019 and M004."""
        from aotc.engine.device.cuda_device import CudaDevice

        return CudaDevice(self.index, stream=self.stream)

    def settings(self, device: Device | None = None) -> dict[str, dict[str, str]]:
        """Provider options of a session here; with `device`, on its stream and capturing."""
        options = {"device_id": str(self.index)} if self.index else {}
        stream = device.stream if device is not None else self.stream
        if stream is not None:
            options |= {"has_user_compute_stream": "1", "user_compute_stream": str(stream)}
        if device is not None:
            options |= {GRAPH_OPTION: "1"}
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
    from aotc.engine.device.capturing_runner import CapturingRunner

    device = placed.device()
    try:
        return CapturingRunner(opener(placed.settings(device)), device, graphs, where)
    except AotcError as error:
        device.close()
        if _NO_CAPTURE in error.found:
            raise capture_refused(error.found, where) from None
        raise
