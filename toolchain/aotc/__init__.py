"""aotc: an ahead-of-time build toolchain for ONNX models.

`build`, `check_models`, `verify`, `inspect` and `load` are imported when first used, so a host that
only verifies artifacts needs neither onnx, onnxruntime nor numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotc.contract.versions import VERSION as __version__

if TYPE_CHECKING:
    from aotc.checking.check import check_models
    from aotc.inspection.summary import inspect
    from aotc.pipeline import build
    from aotc.runtime.loading import load
    from aotc.verification.gate import verify

__all__ = ["__version__", "build", "check_models", "inspect", "load", "verify"]

_PUBLIC = {
    "build": "aotc.pipeline",
    "check_models": "aotc.checking.check",
    "verify": "aotc.verification.gate",
    "inspect": "aotc.inspection.summary",
    "load": "aotc.runtime.loading",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        from importlib import import_module

        try:
            return getattr(import_module(_PUBLIC[name]), name)
        except ModuleNotFoundError as error:
            from aotc.errors import missing_package

            raise missing_package(error, f"aotc.{name}", only_loads=name == "load") from None
    raise AttributeError(f"module 'aotc' has no attribute {name!r}")
