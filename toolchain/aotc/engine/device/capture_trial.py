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


def why_not_captured(
    opener: Callable[[Settings], ort.InferenceSession], inputs: Mapping[str, Data], where: str
) -> str:
    """Why no graph is captured of a run with these host arrays; "" if one is, and replays rightly.

    `opener` creates the session with such options of providers.  Raises AOTC-R025, I019 and M004,
    and what `opener` raises.
    """
    runner = None
    try:
        # No dim is named, so that all calls are of the captured sizes.
        runner = open_capturing(GraphCapture(sizes=({},)), CudaPlace(), opener, where)
        runner.capture(inputs, {})
    except AotcError as error:
        if error.code != "AOTC-R024":
            raise
        return error.found or error.what
    finally:
        if runner is not None:
            runner.close()
    return ""
