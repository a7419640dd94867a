"""Runs of one dynamic session with and without CUDA graphs, to measure what sizes cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from aotc.contract.manifest.graph_capture import GraphCapture
from aotc.engine.device.cuda_place import CudaPlace, Settings, open_capturing
from aotc.errors import AotcError

if TYPE_CHECKING:
    import onnxruntime as ort

# One run at the sizes that it was made for.
FixedRun = Callable[[], None]
# Of both, the most that may be stated: no size may be dropped while it is measured.
_MAX_COUNT = 1024
_MAX_BYTES = 2**53 - 1


class CapturedRuns:
    """A session on CUDA that captures sizes, and replays them."""

    def __init__(
        self, opener: Callable[[Settings], ort.InferenceSession], dims: tuple[str, ...]
    ) -> None:
        """`opener` creates the session; `dims` are all that sizes name.

        Raises AOTC-S005 if no graph can be captured, and R025 and I019 without a GPU.
        """
        self._dims = dims
        graphs = GraphCapture(
            sizes=(dict.fromkeys(dims, 0),), max_count=_MAX_COUNT, max_bytes=_MAX_BYTES
        )
        self._runner = _measured(
            lambda: open_capturing(graphs, CudaPlace(), opener, "the measured graph")
        )

    def at(self, sizes: Mapping[str, int], given: Mapping[str, Any]) -> FixedRun:
        """Capture a run of the inputs `given`, of `sizes`, once; the result replays it.

        Raises AOTC-S005 if the size does not run, or is not kept.
        """
        wanted = {dim: sizes.get(dim, 0) for dim in self._dims}
        if wanted not in self._runner.captured:
            _measured(lambda: self._runner.capture(given, sizes))
        if wanted not in self._runner.captured:
            raise AotcError(
                "AOTC-S005",
                "the captured size is not kept",
                where=", ".join(f"{dim}={size}" for dim, size in wanted.items()),
                found="; ".join(finding.what for finding in self._runner.findings),
            )

        def replay() -> None:
            self._runner.run(given, None, sizes)

        return replay

    def without_graph(self, given: Mapping[str, Any]) -> None:
        """Run the inputs `given` as a call at sizes that are not captured.

        Raises AOTC-S005 if they do not run.
        """
        _measured(lambda: self._runner.run_without_graph(given))


def _measured(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except AotcError as error:
        if error.code not in ("AOTC-R024", "AOTC-R005", "AOTC-M004"):
            raise
        raise AotcError("AOTC-S005", error.what, where=error.where, found=error.found) from None
