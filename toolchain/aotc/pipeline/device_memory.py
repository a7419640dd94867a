"""Device memory of a plain session of the model, which that of a variant is told beside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aotc.base.errors import AotcError
from aotc.graph import values
from aotc.host.nvidia import free_memory, memory_taken, missing_gpu
from aotc.pipeline.context import BuildState
from aotc.pipeline.types import LoweredModel
from aotc.spec.codec import Json
from aotc.spec.providers import CAPTURING, CPU
from aotc.spec.variant import SessionSpec


def plain_device_bytes(variants: Sequence[LoweredModel], state: BuildState) -> int | None:
    """What a plain session on CUDA takes after its first run, in a process of its own.

    It is the session of the user's model with ONNX Runtime's defaults, and the run that of the
    fixture with the largest inputs.  None without a GPU, a variant for CUDA or a fixture, and where
    that session fails: it is no part of what is proven.
    """
    on_cuda = [item for item in variants if CAPTURING.ort_name in item.providers]
    if not on_cuda or missing_gpu() or not on_cuda[0].analyzed.references:
        return None
    analyzed = on_cuda[0].analyzed
    largest = max(
        analyzed.references,
        key=lambda run: sum(path.stat().st_size for path in run.inputs.values()),
    )
    model, weights = analyzed.source.answering
    request = {"model": str(model), "weights": str(weights), "inputs": largest.input_paths}
    folder = state.work / "plain-on-device"
    try:
        value = state.workers.run(
            "aotc.pipeline.device_memory:plain_job", request, folder=folder, where="plain session"
        ).value
    except AotcError as error:
        state.announce(error.line())
        return None
    return None if value is None else int(value)


def plain_job(request: Json) -> Json:
    """In the worker: bytes of the device that the session and a run take, without the context."""
    from aotc.session.sessions import create_session, run

    before = free_memory()
    session = create_session(
        Path(request["model"]),
        SessionSpec(optimization="all"),
        providers=[CAPTURING.ort_name, CPU],
        weights_folder=Path(request["weights"]),
    )
    run(session, {name: values.load(Path(path)) for name, path in request["inputs"].items()})
    return memory_taken(before)
