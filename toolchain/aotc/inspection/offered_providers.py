"""What this machine has of each execution provider that a profile can name."""

from __future__ import annotations

from aotc.backends.base import BACKENDS, Backend, Capability
from aotc.contract.profile import Profile
from aotc.engine.named_backends import backend_of
from aotc.host.plugin_libraries import stated_libraries


def capabilities() -> tuple[Capability, ...]:
    """The capability of every backend, and of the libraries that the environment states."""
    found = []
    for name in BACKENDS.names():
        backend: Backend = BACKENDS.load(name)()
        found.append(backend.probe())
    for ort_name, library in stated_libraries().items():
        from aotc.backends.plugin import PluginBackend

        found.append(PluginBackend(library.name, ort_name, library, {}).probe())
    return tuple(found)


def check_names(profile: Profile) -> None:
    """Raise AOTC-P007 for a provider that is neither built in nor one of the profile's plugins."""
    orders = (profile.providers, *(spec.providers or () for spec in profile.variants))
    for name in (name for order in (*orders, *profile.tune.providers) for name in order):
        backend_of(name, profile.plugins)
