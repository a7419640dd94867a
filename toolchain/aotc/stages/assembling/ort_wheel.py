"""What the metadata of the installed ONNX Runtime distribution says."""

from __future__ import annotations

import re
from importlib import metadata

from aotc.contract.known_providers import RUNTIMES


def wheel_libc() -> str | None:
    """The minimum glibc of the ONNX Runtime wheel, from its manylinux tag."""
    for name in RUNTIMES:
        try:
            text = metadata.distribution(name).read_text("WHEEL") or ""
        except metadata.PackageNotFoundError:
            continue
        found = sorted((int(m[1]), int(m[2])) for m in re.finditer(r"manylinux_(\d+)_(\d+)", text))
        if found:
            return f"{found[0][0]}.{found[0][1]}"
    return None


def ort_version() -> str:
    """The version of the installed ONNX Runtime distribution."""
    for name in RUNTIMES:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "0"
