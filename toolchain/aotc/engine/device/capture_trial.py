"""Whether ONNX Runtime captures a graph, found by capturing one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aotc.contract.manifest.graph_capture import GraphCapture
from aotc.engine.device.cuda_place import CudaPlace, Settings, open_capturing
from aotc.engine.values import Data
from aotc.errors import AotcError

if TYPE_CHECKING:
    import onnxruntime as ort

    from aotc.engine.device.capturing_runner import CapturingRunner


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


def why_not_captured(
    opener: Callable[[Settings], ort.InferenceSession], inputs: Mapping[str, Data], where: str
) -> str:
    """Why no graph is captured of a run with these host arrays; "" if one is, and replays rightly.

    Raises what `captured_run` does, but AOTC-R024.
    """
    try:
        captured_run(opener, inputs, where).close()
    except AotcError as error:
        if error.code != "AOTC-R024":
            raise
        return error.found or error.what
    return ""
