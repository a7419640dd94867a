"""Capture: from a source of a framework to the ONNX model that is imported, in the sandbox."""

from __future__ import annotations

from pathlib import Path

from aotc.base.errors import AotcError
from aotc.pipeline.context import BuildState
from aotc.pipeline.request import BuildRequest
from aotc.sources.base import Captured, CaptureRequest, Taken
from aotc.sources.registry import importer_of
from aotc.spec.codec import decode, encode


def capture_source(request: BuildRequest, state: BuildState) -> Taken | None:
    """The capture of the request's source; None if it is an ONNX model.

    Raises AOTC-I127 (the source runs code, and is not trusted), I019 (packages are missing), and
    what its importer refuses.
    """
    importer = importer_of(request.model)
    if importer is None:
        return None
    assert not isinstance(request.model, bytes)
    source = str(request.model)
    if importer.runs_code and not request.trust_source:
        raise AotcError("AOTC-I127", f"{importer.title} runs code of its own", where=source)
    importer.require(source)
    files = importer.files(source)
    asked = CaptureRequest(
        source=str(Path(source).absolute()) if files else source,
        trusted=request.trust_source,
        options=request.source_options,
    )
    folder = state.work / "capture"
    name = Path(source).name
    result = state.workers.run(
        "aotc.sources.base:capture_job",
        {"importer": importer.name, "request": encode(asked)},
        folder=folder,
        where=name,
    )
    return Taken(
        importer=importer.name,
        request=asked,
        folder=folder,
        captured=decode(Captured, result.value),
        source_name=importer.model_name(source),
        files=files,
    )
