"""What runs the session of a loaded variant: as it is, or by replaying captured graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from aotc.contract.finding import Finding
from aotc.contract.manifest.variant import Variant
from aotc.engine import session as sessions
from aotc.engine.ortvalue import needs_ortvalues
from aotc.engine.values import Data
from aotc.errors import AotcError
from aotc.records import record

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnxruntime as ort

    from aotc.engine.device.device import Device

CUDA: Final = "CUDAExecutionProvider"
# The beginning of ONNX Runtime's message if it cannot capture a graph at all.
_NO_CAPTURE: Final = "This session cannot use the graph capture feature"


class Runner(Protocol):
    """Runs one session; thread-safe."""

    session: ort.InferenceSession

    def run(
        self, inputs: Mapping[str, Data], names: Sequence[str] | None, sizes: Mapping[str, int]
    ) -> list[Data]:
        """The named outputs (None: all) for inputs of `sizes`."""

    @property
    def device(self) -> Device:
        """Where inputs and outputs of bound calls are."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was noticed so far."""

    def close(self) -> None:
        """Free what it holds besides the session."""


class PlainRunner:
    """Runs a session with host arrays, as ONNX Runtime does."""

    def __init__(
        self,
        session: ort.InferenceSession,
        variant: Variant,
        placed: CudaPlace,
        findings: tuple[Finding, ...] = (),
    ) -> None:
        """`findings` are those of its creation."""
        self.session = session
        self.findings = findings
        self._ortvalues = needs_ortvalues(session)
        self._on_cuda = variant.providers[:1] == (CUDA,)
        self._placed = placed
        self._device: Device | None = None

    @property
    def device(self) -> Device:
        """The GPU of the session's first provider, or the host."""
        from aotc.engine.device.device import HostDevice

        if self._device is None:
            self._device = self._placed.device() if self._on_cuda else HostDevice()
        return self._device

    def run(
        self, inputs: Mapping[str, Data], names: Sequence[str] | None, sizes: Mapping[str, int]
    ) -> list[Data]:
        """The named outputs (None: all); raises AOTC-R005."""
        return sessions.run(self.session, inputs, names, ortvalues=self._ortvalues)

    def close(self) -> None:
        """Free page-locked memory."""
        if self._device is not None:
            self._device.close()


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
            options |= {"enable_cuda_graph": "1"}
        return {CUDA: options} if options else {}


def open_runner(
    variant: Variant,
    placed: CudaPlace,
    opener: Callable[[Mapping[str, Mapping[str, str]]], ort.InferenceSession],
) -> Runner:
    """The runner of a variant; `opener` creates its session with such provider options.

    Raises AOTC-R024 if the variant promises captured graphs that ONNX Runtime refuses, R025, I019,
    and what `opener` raises.
    """
    graphs = variant.graphs
    if graphs is None:
        settings = placed.settings() if CUDA in variant.providers else {}
        if settings:
            placed.device().close()
        return PlainRunner(opener(settings), variant, placed)
    from aotc.engine.device.capturing_runner import CapturingRunner, capture_refused

    device = placed.device()
    where = f"variant {variant.name}"
    try:
        return CapturingRunner(opener(placed.settings(device)), device, graphs, where)
    except AotcError as error:
        refused = error.code == "AOTC-R024" or _NO_CAPTURE in error.found
        if not refused:
            raise
        why = error if error.code == "AOTC-R024" else capture_refused(error.found, where)
        if graphs.refused == "fail":
            raise why from None
    finding = Finding(
        code=why.code, what=f"calls run without a graph: {why.found}"[:500], where=where
    )
    return PlainRunner(opener(placed.settings()), variant, placed, (finding,))
