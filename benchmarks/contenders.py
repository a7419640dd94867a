"""The sides of a comparison: an artifact, a plain session of ONNX Runtime, and OpenVINO's own API.

Each function takes a request in its own process, see `benchmarks.sides`; its arguments are the
sizes of the model's dims.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.networks.models import input_shapes, inputs_of
from benchmarks.sides import Arrays, Call, Spec

Inputs = dict[str, np.ndarray[Any, Any]]

PROVIDER = "OpenVINOExecutionProvider"
# OpenVINO's names for the precisions keep and bfloat16 of profiles.
HINTS = {"keep": "f32", "bfloat16": "bf16"}


def artifact_spec(artifact: Path, key: Path, model: Path, variant: str | None = None) -> Spec:
    """An artifact, called through `aotc.load`."""
    request = {"artifact": str(artifact), "key": str(key), "model": str(model), "variant": variant}
    return Spec("contenders:artifact", request)


def plain_spec(model: Path) -> Spec:
    """A session with ONNX Runtime's defaults on the CPU."""
    return Spec("contenders:plain", {"model": str(model)})


def openvino_spec(model: Path, precision: str, sizes: Mapping[str, int]) -> Spec:
    """OpenVINO's own API, with the dims in `sizes` fixed."""
    request = {"model": str(model), "hint": HINTS[precision], "sizes": dict(sizes)}
    return Spec("contenders:openvino_call", request)


def artifact(request: dict[str, Any]) -> Call:
    """Load the artifact, with everything that a load includes."""
    import aotc

    ready = aotc.load(request["artifact"], key=request["key"], variant=request["variant"])
    return _input_maker(request["model"]), ready.run


def plain(request: dict[str, Any]) -> Call:
    """A session with ONNX Runtime's defaults."""
    import onnxruntime as ort

    session = ort.InferenceSession(request["model"], providers=["CPUExecutionProvider"])
    return _session_call(session, request["model"])


def plugin_session(model: str, hint: str, sizes: Mapping[str, int]) -> Any:
    """A session with the plugin, which compiles the model in OpenVINO's precision `hint`.

    The named dims are fixed at `sizes` by ONNX Runtime.
    """
    import onnxruntime as ort

    options = plugin_options(hint)
    for name, size in sizes.items():
        options.add_free_dimension_override_by_name(name, size)
    return ort.InferenceSession(model, options, enable_fallback=0)


def plugin_options(hint: str) -> Any:
    """Options of a session with the plugin, which is registered first."""
    import onnxruntime as ort

    _register()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    devices = [
        device
        for device in ort.get_ep_devices()
        if device.ep_name == PROVIDER and device.device.type.name == "CPU"
    ]
    config = json.dumps({"CPU": {"INFERENCE_PRECISION_HINT": hint}})
    options.add_provider_for_devices(devices[:1], {"load_config": config})
    return options


@cache
def _register() -> None:
    import onnxruntime as ort
    import onnxruntime_ep_openvino as plugin

    ort.register_execution_provider_library(PROVIDER, plugin.get_library_path())


def inputs_at(model: Path, sizes: Mapping[str, int]) -> Inputs:
    """Generated inputs of a model, with its named dims at `sizes`."""
    return _input_maker(str(model))(sizes)


def openvino_call(request: dict[str, Any]) -> Call:
    """A model compiled for one call at a time, with as many threads as cores.

    Inputs and outputs are shared with the caller, which is the fastest way to call it.
    """
    openvino = import_module("openvino")
    core = openvino.Core()
    model = core.read_model(request["model"])
    fixed = {
        name: [size if isinstance(size, int) else request["sizes"][size] for size in shape]
        for name, (shape, _) in input_shapes(Path(request["model"])).items()
    }
    model.reshape(fixed)
    options = {"INFERENCE_PRECISION_HINT": request["hint"], "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(model, "CPU", options)
    names = [output.get_any_name() for output in compiled.outputs]

    def call(inputs: Inputs) -> Arrays:
        found = compiled(inputs)
        return {name: found[index] for index, name in enumerate(names)}

    return _input_maker(request["model"]), call


def _session_call(session: Any, model: str) -> Call:
    names = [output.name for output in session.get_outputs()]
    return _input_maker(model), lambda inputs: dict(
        zip(names, session.run(names, inputs), strict=True)
    )


def _input_maker(model: str) -> Callable[[Mapping[str, int]], Inputs]:
    """A function that generates inputs at given sizes."""
    described = input_shapes(Path(model))
    dtypes = {name: dtype for name, (_, dtype) in described.items()}

    def random_inputs(sizes: Mapping[str, int]) -> Inputs:
        shapes = {
            name: [size if isinstance(size, int) else sizes[size] for size in shape]
            for name, (shape, _) in described.items()
        }
        return inputs_of(shapes, dtypes)

    return random_inputs
