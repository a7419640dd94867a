"""The NPU of Nimbus, as a plugin of ONNX Runtime."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Final

from aotc.providers.base import ANY_USE, SessionUse
from aotc.providers.plugin import PluginBackend
from aotc.spec.precision import Precision
from aotc.spec.providers import BY_NAME, Rates
from aotc.spec.variant import Optimization, SessionSpec

_KNOWN: Final = BY_NAME["nimbus"]
_LIBRARY: Final = "libonnxruntime_ep_nimbus.so"


class NimbusBackend(PluginBackend):
    """The NPU that `onnxruntime-ep-nimbus` drives."""

    # Measured on the device, and rough: they weigh a partition against its boundaries.
    rates: ClassVar[Rates] = Rates(
        flops=4e12, bytes=5e10, transfer_bytes=8e9, transfer_seconds=5e-5
    )

    def __init__(self) -> None:
        super().__init__(_KNOWN.name, _KNOWN.ort_name, None, {})

    def library(self) -> Path | None:
        """The plugin's library in its package; None where that is not installed."""
        package = _KNOWN.plugin.package if _KNOWN.plugin else ""
        found = find_spec(package)
        return Path(found.origin).parent / _LIBRARY if found and found.origin else None

    def session(
        self, optimization: Optimization, precision: Precision = "keep", use: SessionUse = ANY_USE
    ) -> SessionSpec:
        """Full power, whatever the device's own default is."""
        options = {self.ort_name: {"power": "high"}}
        return SessionSpec(optimization=optimization, provider_options=options)
