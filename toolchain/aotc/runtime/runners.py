"""What runs the session of a loaded variant: as it is, or by replaying captured graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from aotc.base.errors import AotcError
from aotc.graph.values import Data
from aotc.providers.ort import tells_of_memory
from aotc.session import sessions
from aotc.session.device.capture_gate import GATE, capture_refused, do_nothing
from aotc.session.device.cuda_place import CudaPlace, open_capturing
from aotc.spec.payload import Finding
from aotc.spec.providers import CAPTURING, SIZED_BY_VALUES
from aotc.spec.reports import CapturedGraphs
from aotc.spec.variant import Variant

if TYPE_CHECKING:
    import onnxruntime as ort

    from aotc.session.device.device import Device, PartOf


class Runner(Protocol):
    """Runs one session; thread-safe."""

    session: ort.InferenceSession
    on_capture: Callable[[], object]
    """Called whenever a graph was captured."""
    on_copies: Callable[[int, float], object]
    """Called with bytes and seconds of a call's copies to and from the device, if timed."""

    @property
    def copies(self) -> bool:
        """Whether inputs and outputs of calls are copied to and from a device."""

    def run(
        self,
        inputs: Mapping[str, Data],
        names: Sequence[str] | None,
        sizes: Mapping[str, int],
        part_of: PartOf | None = None,
    ) -> list[Data]:
        """The named outputs (None: all) for inputs of `sizes`.

        Of an output, `part_of` says which part is wanted: the rest need not be copied.
        """

    def missed_graph(self, sizes: Mapping[str, int]) -> bool:
        """Whether a call of `sizes` has run without the graph that the variant promises."""

    @property
    def device(self) -> Device:
        """Where inputs and outputs of bound calls are."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was noticed so far."""

    @property
    def captures(self) -> CapturedGraphs | None:
        """Which promised sizes are captured now; None if the variant promises none."""

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
        self._ortvalues = sessions.needs_ortvalues(session)
        self._on_cuda = variant.providers[:1] == (CAPTURING.ort_name,)
        self._options: ort.RunOptions | None = None
        if variant.session.shrinks:
            arena = f"gpu:{placed.index}" if self._on_cuda else "cpu:0"
            self._options = sessions.shrinking_run(arena)
        self._placed = placed
        # All are refused where there should be some: else another runner has the session.
        self.captures = (
            CapturedGraphs(refused=graphs.sizes) if (graphs := variant.cuda_graphs) else None
        )
        self.on_capture: Callable[[], object] = do_nothing
        self.on_copies: Callable[[int, float], object] = do_nothing

    @property
    def copies(self) -> bool:
        """Of a session on the GPU; ONNX Runtime copies, and does not say how long it takes."""
        return self._on_cuda

    def missed_graph(self, sizes: Mapping[str, int]) -> bool:
        """Every call, if its variant captures graphs."""
        return self.captures is not None

    @property
    def device(self) -> Device:
        """The GPU of the session's first provider, or the host."""
        if self._on_cuda:
            return self._placed.device()
        from aotc.session.device.device import HostDevice

        return HostDevice()

    def run(
        self,
        inputs: Mapping[str, Data],
        names: Sequence[str] | None,
        sizes: Mapping[str, int],
        part_of: PartOf | None = None,
    ) -> list[Data]:
        """The named outputs (None: all), whole; raises AOTC-M004, R005, R057 and R058."""
        if not self._on_cuda:
            try:
                return self._run(inputs, names)
            except AotcError as error:
                if error.code != "AOTC-R005" or not tells_of_memory(error.found):
                    raise
                what = "the host gives too little memory for a call"
                raise AotcError("AOTC-R057", what, found=error.found) from None
        with GATE.used():
            return self._run(inputs, names)

    def _run(self, inputs: Mapping[str, Data], names: Sequence[str] | None) -> list[Data]:
        return sessions.run(
            self.session, inputs, names, ortvalues=self._ortvalues, options=self._options
        )

    def close(self) -> None:
        """Free page-locked memory of bound calls."""
        if self._on_cuda:
            self._placed.close()


def open_runner(
    variant: Variant,
    placed: CudaPlace,
    opener: Callable[[Mapping[str, Mapping[str, str]]], ort.InferenceSession],
) -> Runner:
    """The runner of a variant; `opener` creates its session with such provider options.

    Raises AOTC-R024 if the variant promises captured graphs that ONNX Runtime refuses, R025, I019,
    and what `opener` raises.
    """
    graphs = variant.cuda_graphs
    if graphs is None:
        settings = placed.settings() if CAPTURING.ort_name in variant.providers else {}
        if settings:
            # Raises if there is no such device: ONNX Runtime would take the CPU.
            placed.device()
        return PlainRunner(opener(settings), variant, placed)
    where = f"variant {variant.name}"
    try:
        _refuse_sizes_by_value(variant, where)
        return open_capturing(graphs, placed, opener, where)
    except AotcError as error:
        if error.code != "AOTC-R024" or graphs.on_refusal == "fail":
            raise
        what = f"calls run without a graph: {error.found}"[:500]
    finding = Finding(code="AOTC-R024", what=what, where=where)
    return PlainRunner(opener(placed.settings()), variant, placed, (finding,))


def _refuse_sizes_by_value(variant: Variant, where: str) -> None:
    """A failed capture can leave the device unusable for the process, so it is not tried."""
    operators = {node.op for node in variant.placement.nodes} & SIZED_BY_VALUES
    if operators:
        raise capture_refused(f"{', '.join(sorted(operators))}: sizes depend on values", where)


def closed_error(*, left: bool) -> AotcError:
    """AOTC-R005 for a closed model, or R026 for one that a forked child `left` to its parent."""
    if left:
        return AotcError("AOTC-R026", "the model was loaded before this process was forked")
    return AotcError("AOTC-R005", "the model is closed", fix="Load it again.")


def close_all(runners: Sequence[Runner]) -> None:
    """Close runners; calls that are running still answer."""
    for runner in runners:
        runner.close()
