"""aotc: an ahead-of-time build toolchain for ONNX models.

`build`, `check_models`, `verify`, `inspect` and `load` are imported when first used, so a host that
only verifies artifacts needs neither onnx, onnxruntime nor numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotc.spec.versions import VERSION as __version__

if TYPE_CHECKING:
    from aotc.pipeline.build import build
    from aotc.runtime.loading import load
    from aotc.tools.check_models import check_models
    from aotc.tools.inspect import inspect
    from aotc.trust.gate import verify

__all__ = ["__version__", "build", "check_models", "inspect", "load", "verify"]

_PUBLIC = {
    "build": "aotc.pipeline.build",
    "check_models": "aotc.tools.check_models",
    "verify": "aotc.trust.gate",
    "inspect": "aotc.tools.inspect",
    "load": "aotc.runtime.loading",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        from importlib import import_module

        try:
            return getattr(import_module(_PUBLIC[name]), name)
        except ModuleNotFoundError as error:
            from aotc.base.errors import missing_package

            raise missing_package(error, f"aotc.{name}", only_loads=name == "load") from None
    raise AttributeError(f"module 'aotc' has no attribute {name!r}")
