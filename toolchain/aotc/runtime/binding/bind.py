"""Makes a bound call: the guards and the routing of `run`, for tensors that stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aotc.engine.device.capture_gate import GATE
from aotc.engine.device.host_arrays import Part
from aotc.engine.padding import Padder
from aotc.errors import AotcError
from aotc.runtime.binding.bound_call import BoundCall, Start
from aotc.runtime.binding.given_tensors import take_tensor
from aotc.runtime.guards import Guard
from aotc.runtime.routing import Route, Router
from aotc.runtime.runners import Runner

# The default stream of CUDA, on which most libraries work unless they are told otherwise.
_DEFAULT_STREAM = 0


def bind_call(
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    guard: Guard,
    router: Router,
    runners: Sequence[Runner],
    padder: Padder,
    stream: Any,
    counted: Callable[[Route, tuple[str, ...]], Callable[[float], None]],
    model: object,
) -> BoundCall:
    """A bound call of the variant that takes such inputs; see `ReadyModel.bind`.

    `counted` makes what is told the seconds of each call, of its route and of the dims outside the
    proven range.  `model` lives as long as the call.
    """
    # All variants of a model are on one device.
    device = runners[0].device
    # Producers make the stream of the device wait for their values.
    with GATE.used(), device.lock:
        given = {name: take_tensor(name, value, device) for name, value in inputs.items()}
    for name, item in given.items():
        item.refuse_narrow(name)
    checked = guard.check({name: item.shadow() for name, item in given.items()})
    if checked.inputs.keys() != given.keys():
        raise AotcError(
            "AOTC-R001",
            "a bound call needs all inputs, optional ones too",
            where="inputs",
            expected=", ".join(checked.inputs),
            found=", ".join(given),
        )
    route = router.route(checked.sizes, checked.outside)
    fills = {fill.name: fill for fill in padder.fills(checked.sizes, route.wanted)}
    shapes: dict[str, tuple[tuple[int, ...], Start, Any]] = {}
    for name, item in given.items():
        fill = fills.get(name)
        if fill is None:
            shapes[name] = (item.shape, (0,) * len(item.shape), None)
        else:
            start = tuple(
                part.indices(size)[0] for part, size in zip(fill.slices, fill.shape, strict=True)
            )
            shapes[name] = (fill.shape, start, fill.value)

    def crop(name: str, shape: Sequence[int]) -> Part | None:
        return padder.crop_slices(name, shape, checked.sizes) if route.pads else None

    return BoundCall(
        runners[route.variant],
        given,
        shapes,
        outputs,
        crop,
        sizes=route.wanted,
        stream=_stream_handle(stream) if device.stream is not None else None,
        counted=counted(route, checked.outside),
        model=model,
    )


def _stream_handle(stream: Any) -> int:
    """CUDA's handle of a stream: of torch, CuPy, `__cuda_stream__`, or the handle itself."""
    if stream is None:
        return _DEFAULT_STREAM
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    raise AotcError(
        "AOTC-R021",
        "the stream is not one of CUDA's",
        where="stream",
        expected="a handle, or a stream of torch or CuPy",
        found=type(stream).__name__,
    )
