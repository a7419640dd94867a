"""The provider's own verdict on a compiled model, from a private module of ORT."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aotc.backends.onnxruntime_import import import_onnxruntime
from aotc.engine.named_backends import library_of, plugin_devices


def verdicts(
    compatibility: Mapping[str, str], libraries: Mapping[str, Path]
) -> dict[str, tuple[str, str]]:
    """Verdict and compatibility string, by ORT's name of the provider.

    The verdict is the name of ORT's `OrtCompiledModelCompatibility`: `EP_SUPPORTED_OPTIMAL`,
    `EP_SUPPORTED_PREFER_RECOMPILATION`, `EP_UNSUPPORTED` or `EP_NOT_APPLICABLE`.  Raises AOTC-P004
    if a plugin cannot be registered.
    """
    if not compatibility:
        return {}
    import_onnxruntime()
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    found = {}
    for provider, text in compatibility.items():
        library = libraries.get(provider) or library_of(provider)
        if library is None:
            continue
        verdict = native.get_model_compatibility_for_ep_devices(
            plugin_devices(provider, library), text
        )
        found[provider] = (verdict.name, text)
    return found
