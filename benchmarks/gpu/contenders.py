"""The sides: an artifact, a plain session of ONNX Runtime, torch.compile and torch's eager mode.

Each call computes once and waits for the device; outputs stay there.  A side is called with tensors
that stay in its device's memory, or with new inputs: page-locked arrays of the host, which every
side copies to the device in its own types, by one asynchronous copy each.  torch is imported before
ONNX Runtime, so that both use the CUDA libraries of torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from benchmarks.gpu.cases import Settings
from benchmarks.gpu.inputs import Inputs, as_taken

Call = Callable[[], Any]
Tensors = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side at one size: calls of what stays, and of new inputs in turn."""

    bound: Call
    renewed: Call
    captured: bool = True


def prepare_torch() -> None:
    """TF32 for what torch computes in float32, as with ONNX Runtime's defaults."""
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("high")


def on_device(settings: Settings, inputs: Inputs) -> Tensors:
    """The inputs as tensors of torch."""
    return {name: torch.from_numpy(array).to(settings.device) for name, array in inputs.items()}


def _page_locked(settings: Settings, inputs: Inputs) -> Tensors:
    """The inputs as tensors in page-locked memory of the host."""
    tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
    return tensors if settings.cpu else {name: each.pin_memory() for name, each in tensors.items()}


def wait(settings: Settings) -> None:
    """Wait for the device."""
    if not settings.cpu:
        torch.cuda.synchronize()


def ours(settings: Settings, model: Any, sets: Sequence[Inputs]) -> Side:
    """The artifact, with `sets` of inputs of one size, which are cast to the types that it takes.

    On the CPU alone, a model without `bind` runs host arrays instead: it tries the program.
    """
    cast = [as_taken(model, each) for each in sets]
    if settings.cpu and not hasattr(model, "bind"):
        found = itertools.cycle(cast)
        return Side(
            bound=lambda: model.run(cast[0]), renewed=lambda: model.run(next(found)), captured=False
        )
    call = model.bind(on_device(settings, cast[0]))
    given = itertools.cycle([_page_locked(settings, each) for each in cast])

    def bound() -> Any:
        found = call()
        wait(settings)
        return found

    def renewed() -> Any:
        found = call(next(given))
        wait(settings)
        return found

    return Side(bound=bound, renewed=renewed, captured=bool(call.captured))


def theirs(
    settings: Settings, network: Any, sets: Sequence[Inputs], precision: str, *, compiles: bool
) -> Side:
    """torch with exactly these shapes; half precision takes half inputs.

    Compiled in the mode `reduce-overhead`, or eager.
    """
    dtype = torch.float16 if precision == "float16" else torch.float32
    function = network.to(settings.device, dtype)
    if compiles:
        torch._dynamo.reset()
        # Without a compiler for the host, the eager backend tries the program.
        how = {"backend": "eager"} if settings.cpu else {"mode": "reduce-overhead"}
        function = torch.compile(function, dynamic=False, **how)
    locked = [
        [
            tensor.to(dtype) if tensor.is_floating_point() else tensor
            for tensor in map(torch.from_numpy, each.values())
        ]
        for each in sets
    ]
    if not settings.cpu:
        locked = [[tensor.pin_memory() for tensor in each] for each in locked]
    given = [tensor.to(settings.device, copy=True) for tensor in locked[0]]
    new = itertools.cycle(locked)

    def bound() -> Any:
        with torch.inference_mode():
            found = function(*given)
        wait(settings)
        return found

    def renewed() -> Any:
        with torch.inference_mode():
            for tensor, other in zip(given, next(new), strict=True):
                tensor.copy_(other, non_blocking=True)
        return bound()

    return Side(bound=bound, renewed=renewed)


def with_new_inputs(
    settings: Settings, model: Any, tensors: Tensors
) -> tuple[Callable[[Tensors], Any], bool]:
    """A bound call that pads and copies other tensors of such sizes; whether it is captured."""
    call = model.bind(tensors)

    def run(given: Tensors) -> Any:
        found = call(given)
        wait(settings)
        return found

    return run, bool(call.captured)


def copied(tensors: Tensors) -> Tensors:
    """The tensors in other memory of the device."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def answers(found: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs of an artifact's call, on the host."""
    return {
        name: value if isinstance(value, np.ndarray) else torch.from_dlpack(value).cpu().numpy()
        for name, value in found.items()
    }


def plain_session(settings: Settings, model: Path, **options: str) -> Any:
    """A session with ONNX Runtime's defaults and `options` of the CUDA provider."""
    import onnxruntime as ort

    if settings.cpu:
        return ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    session = ort.InferenceSession(
        model, providers=[("CUDAExecutionProvider", options), "CPUExecutionProvider"]
    )
    if "CUDAExecutionProvider" not in session.get_providers():
        raise RuntimeError("ONNX Runtime has no CUDA here")
    return session


def plain(
    settings: Settings, session: Any, tensors: Tensors, *, graph: str | None = None
) -> tuple[Call, dict[str, Any]]:
    """The session with inputs and outputs bound on the device, and the OrtValues of its outputs.

    `graph` is the name of a CUDA graph, of a session that captures them.
    """
    import onnxruntime as ort

    binding = session.io_binding()
    options = ort.RunOptions()
    if graph is not None:
        options.add_run_config_entry("gpu_graph_id", "-1")
    for name, tensor in tensors.items():
        dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
        binding.bind_input(name, settings.device, 0, dtype, tuple(tensor.shape), tensor.data_ptr())
    names = [output.name for output in session.get_outputs()]
    for name in names:
        binding.bind_output(name, settings.device, 0)
    # What it allocates for the outputs of the first run is what later runs write to.
    session.run_with_iobinding(binding, options)
    outputs = dict(zip(names, binding.get_outputs(), strict=True))
    for name, value in outputs.items():
        binding.bind_ortvalue_output(name, value)
    if graph is not None:
        options = ort.RunOptions()
        options.add_run_config_entry("gpu_graph_id", graph)

    # The binding has their addresses alone: memory that torch gives back is not there any more.
    def run(held: Tensors = tensors) -> None:
        session.run_with_iobinding(binding, options)
        wait(settings)

    return run, outputs


def plain_with_new_inputs(settings: Settings, session: Any) -> Callable[[Tensors], Any]:
    """A function that binds tensors of any sizes to the session, and computes."""
    names = [output.name for output in session.get_outputs()]

    def run(given: Tensors) -> Any:
        binding = session.io_binding()
        for name, tensor in given.items():
            dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
            shape, pointer = tuple(tensor.shape), tensor.data_ptr()
            binding.bind_input(name, settings.device, 0, dtype, shape, pointer)
        for name in names:
            binding.bind_output(name, settings.device, 0)
        session.run_with_iobinding(binding)
        wait(settings)
        return binding.get_outputs()

    return run


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """The maximum |difference| of outputs, as a share of the second's maximum value."""
    return max(
        float(
            np.abs(ours[name].astype(np.float64) - value).max()
            / max(float(np.abs(value).max()), 1e-12)
        )
        for name, value in theirs.items()
    )
