"""Jobs of a build for CUDA, run on the CPU: graphs there fail after their session ran other shapes.

That is what a kernel does that keeps what it planned for the last shape only, and frees the rest.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.pipeline import gates, prove
from aotc.session import sessions
from aotc.session.device import capturing_runner, cuda_place
from aotc.session.device.capturing_runner import CapturingRunner
from aotc.session.device.cuda_place import CudaPlace, Settings
from aotc.session.device.device import HostDevice
from aotc.session.device.fixed_run import NO_GRAPH, FixedRun
from aotc.spec.variant import GraphCapture

CPU = "CPUExecutionProvider"
# The shapes that each session ran last, by its id.
planned: dict[int, Any] = {}


class PlannedRun(FixedRun):
    """Replays rightly while its session's plan is of its shapes, which a plain run makes."""

    def __init__(
        self, session: Any, device: Any, inputs: Any, graph_id: int = NO_GRAPH, **more: Any
    ) -> None:
        super().__init__(session, device, inputs, graph_id, **more)
        self._first: dict[str, Any] | None = None
        planned[id(session)] = self._shapes

    def run_without_graph(self) -> None:
        planned[id(self._session)] = self._shapes
        super().run_without_graph()

    def run(self) -> None:
        self._replay()
        super().run()

    def answer(self, arrays: Any, names: Any, part_of: Any = None, **timed: Any) -> list[Any]:
        stale = self._replay()
        found = super().answer(arrays, names, part_of, **timed)
        if stale is not None:
            return [stale[name] for name in names]
        self._first = dict(zip(names, [array.copy() for array in found], strict=True))
        return found

    def _replay(self) -> dict[str, Any] | None:
        if planned[id(self._session)] == self._shapes:
            return None
        return fails[0](self)


class PlannedRunner(CapturingRunner):
    """Notes the shapes of calls that are not captured."""

    def _run_once(self, inputs: Any, names: Any, own: Any = None) -> list[Any]:
        planned[id(own or self.session)] = {name: array.shape for name, array in inputs.items()}
        return super()._run_once(inputs, names, own)


def _dies(run: PlannedRun) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _hangs(run: PlannedRun) -> None:
    time.sleep(600)


def is_lost(run: PlannedRun) -> None:
    """Fail as CUDA does, in a kernel whose code is gone."""
    raise AotcError("AOTC-R036", "the GPU failed", found="CUDA failure 715: illegal instruction")


def _is_stale(run: PlannedRun) -> dict[str, Any] | None:
    return run._first


fails: list[Callable[[PlannedRun], Any]] = [_dies]


def open_on_host(
    graphs: GraphCapture, placed: CudaPlace, opener: Callable[[Settings], Any], where: str
) -> CapturingRunner:
    """As `open_capturing`, in the host's memory."""
    return PlannedRunner(opener({}), HostDevice(), graphs, where, lambda: opener({}))


def _on_host(request: Any) -> Any:
    cuda_place.open_capturing = open_on_host
    capturing_runner.FixedRun = PlannedRun  # type: ignore[misc]
    session = {**request["session"], "provider_options": {}}
    return {**request, "providers": [CPU], "session": session}


def prove_job(request: Mapping[str, Any]) -> Any:
    """The proof, on the CPU."""
    return prove.prove_job(_on_host(request))


def noting_sizes(request: Mapping[str, Any]) -> Any:
    """The proof as on CUDA; it writes the rows of each run to the file `NOTED_SIZES`."""
    run = sessions.run

    def noted(session: Any, inputs: Any, *more: Any, **named: Any) -> Any:
        with Path(os.environ["NOTED_SIZES"]).open("a") as file:
            print(len(inputs["x"]), file=file)
        return run(session, inputs, *more, **named)

    sessions.run = noted
    prove.CAPTURING = replace(prove.CAPTURING, ort_name=CPU)  # type: ignore[misc]
    return prove_job(request)


def crashing(request: Mapping[str, Any]) -> Any:
    """A trial whose graphs end the process."""
    return gates.capture_job(_on_host(request))


def failing(request: Mapping[str, Any]) -> Any:
    """A trial whose graphs fail as CUDA does."""
    fails[0] = is_lost
    return gates.capture_job(_on_host(request))


def stale(request: Mapping[str, Any]) -> Any:
    """A trial whose graphs answer as they did before."""
    fails[0] = _is_stale
    return gates.capture_job(_on_host(request))


def hanging(request: Mapping[str, Any]) -> Any:
    """A trial whose graphs do not end."""
    fails[0] = _hangs
    return gates.capture_job(_on_host(request))


def crashing_always(request: Mapping[str, Any]) -> Any:
    """A trial that ends before anything is captured, whatever the form."""
    os._exit(3)


def refusing(request: Mapping[str, Any]) -> Any:
    """A trial in which ONNX Runtime refuses to capture."""
    raise AotcError("AOTC-R024", "a CUDA graph cannot be captured", found="no such stream")


def without_memory(request: Mapping[str, Any]) -> Any:
    """A trial for which the GPU has too little memory."""
    raise AotcError("AOTC-M004", "the device has too little memory")
