"""The versions of what builds and runs here, by what is installed; none of it is imported."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aotc.contract.results.command_reports import VersionReport


def version_report() -> VersionReport:
    """aotc, Python, and each installed distribution that decides what is built and computed."""
    from importlib import metadata

    from aotc.contract.known_providers import KNOWN_PROVIDERS, RUNTIME_WHEELS
    from aotc.contract.results.command_reports import VersionReport
    from aotc.contract.versions import VERSION

    names = (
        "onnx",
        *(wheel.distribution for wheel in RUNTIME_WHEELS),
        *(name for known in KNOWN_PROVIDERS for name in known.distributions),
    )
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    python = ".".join(map(str, sys.version_info[:3]))
    return VersionReport(aotc=VERSION, python=python, packages=found)
