"""The compilation of one partition in the worker; requests and results are JSON."""

from __future__ import annotations

from pathlib import Path

from aotc.backends.base import CompileRequest, Payload
from aotc.contract.codec.parsing import Json, decode
from aotc.contract.profile import PluginSpec
from aotc.contract.target import Target
from aotc.engine.named_backends import backend_of
from aotc.records import values_of


def payload_of(value: Json) -> Payload:
    """The payload from the result of `compile_job`."""
    return Payload(
        attributes=value["attributes"],
        files=tuple(value["files"]),
        compatibility=value["compatibility"],
        options=value["options"],
        mixes_with_shared=value["mixes_with_shared"],
    )


def compile_job(request: Json) -> Json:
    """In the worker: compile one partition."""
    plugins = {name: decode(PluginSpec, spec) for name, spec in request["plugins"].items()}
    backend = backend_of(request["backend"], plugins)
    payload = backend.compile(
        CompileRequest(
            # Relative, so that no path of this machine is written.
            model=Path(f"{request['stem']}.onnx"),
            weights=Path(request["weights"]),
            stem=request["stem"],
            target=decode(Target, request["target"]),
            precision=request["precision"],
            shapes={
                name: (tuple(shapes[0]), tuple(shapes[1]), tuple(shapes[2]))
                for name, shapes in request["shapes"].items()
            },
            share=request["share"],
        )
    )
    return {
        **values_of(payload),
        "files": list(payload.files),
        "attributes": dict(payload.attributes),
        "options": dict(payload.options),
    }
