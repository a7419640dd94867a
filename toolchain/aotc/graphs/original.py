"""Sessions of the original model: not optimized, if ONNX Runtime has kernels for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from aotc.contract.known_providers import CPU
from aotc.contract.manifest.variant import Optimization
from aotc.engine.session import import_onnxruntime, ort_errors, reference_options
from aotc.errors import AotcError
from aotc.graphs.rejection import rejection

# Some models have operators that only have kernels after fusion.
_LEVELS: Final[tuple[Optimization, ...]] = ("disable", "basic", "extended")
_MISSING_KERNELS: Final = frozenset({"AOTC-I009", "AOTC-I012"})


def create_original(model: Path, options: Any) -> Any:
    """A session of the model file on the CPU.

    Raises AOTC-I008, I009, I012, I015, I016 and I018.
    """
    try:
        return import_onnxruntime().InferenceSession(str(model), options, providers=[CPU])
    except ort_errors() as error:
        raise rejection(
            error, "AOTC-I012", "ONNX Runtime refuses the model", where=model.name
        ) from None


def open_original(model: Path, weights: Path | None = None) -> tuple[Optimization, Any]:
    """The lowest level at which ONNX Runtime accepts `model`, and a session at that level.

    `weights` is the folder of its external data, if it is not the model's own folder.  Raises what
    `create_original` raises at the lowest level.
    """
    refusals: list[AotcError] = []
    for level in _LEVELS:
        try:
            options = reference_options(level=level, weights=weights)
            return level, create_original(model, options)
        except AotcError as error:
            refusals.append(error)
            if error.code not in _MISSING_KERNELS:
                break
    raise refusals[0]
