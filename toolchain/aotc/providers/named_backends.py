"""Backends by their names in a profile, and plugin libraries by ONNX Runtime's provider names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from aotc.base.errors import AotcError
from aotc.base.text import nearest
from aotc.host.plugin_libraries import stated_libraries
from aotc.providers.base import BACKENDS, Backend
from aotc.spec.profile import PluginSpec, Profile
from aotc.spec.providers import BY_ORT_NAME


def backend_of(name: str, plugins: Mapping[str, PluginSpec]) -> Backend:
    """The backend called `name` in a profile; raises AOTC-P007 if there is none."""
    if name in plugins:
        from aotc.providers.plugin import PluginBackend

        spec = plugins[name]
        return PluginBackend(name, spec.provider, Path(spec.library), spec.options)
    if name not in BACKENDS:
        known = (*BACKENDS.names(), *plugins)
        close = BY_ORT_NAME[name].name if name in BY_ORT_NAME else nearest(name, known)
        raise AotcError(
            "AOTC-P007",
            f"no such execution provider: {name}",
            where="providers",
            expected=", ".join(known),
            found=name,
            fix=f"Did you mean {close}?" if close else "",
        )
    backend: Backend = BACKENDS.load(name)()
    return backend


def backends_of(names: Sequence[str], profile: Profile) -> list[Backend]:
    """The backends of a variant, all available here; raises AOTC-P007 and AOTC-P004."""
    backends = [backend_of(name, profile.plugins) for name in names]
    for backend in backends:
        capability = backend.probe()
        if not capability.available:
            raise AotcError(
                "AOTC-P004",
                f"{backend.name} is not available",
                where="providers",
                found=capability.reason,
                fix=f"Correct plugins.{backend.name}.library in the profile."
                if backend.name in profile.plugins
                else capability.fix,
            )
    return backends


@cache
def _built_in(ort_name: str) -> Backend | None:
    if ort_name not in BY_ORT_NAME:
        return None
    backend: Backend = BACKENDS.load(BY_ORT_NAME[ort_name].name)()
    return backend


def library_of(ort_name: str) -> Path | None:
    """The plugin library of a provider on this machine; None if it is part of ORT's wheel."""
    stated = stated_libraries().get(ort_name)
    if stated is not None:
        return stated
    backend = _built_in(ort_name)
    return backend.library() if backend is not None else None


def prepare(ort_name: str) -> None:
    """Load what the provider needs in this process before a session is created."""
    backend = _built_in(ort_name)
    if backend is not None:
        backend.prepare()


def with_threads(ort_name: str, options: dict[str, str], threads: int) -> dict[str, str]:
    """The options of a provider that has threads of its own, with their number set to `threads`."""
    backend = _built_in(ort_name)
    return options if backend is None else backend.with_threads(options, threads)


def with_weights(ort_name: str, options: dict[str, str], folder: Path) -> dict[str, str]:
    """The options of a provider for a session whose external weights are in `folder`."""
    backend = _built_in(ort_name)
    return options if backend is None else backend.with_weights(options, folder)


def plugin_devices(ort_name: str, library: Path) -> list[Any]:
    """ORT's devices for a session with the plugin in `library`; raises AOTC-P004."""
    from aotc.providers.plugin import PluginBackend, devices

    backend = _built_in(ort_name)
    if isinstance(backend, PluginBackend):
        return backend.devices(library)
    return devices(ort_name, library)[:1]
