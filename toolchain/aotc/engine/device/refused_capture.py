"""The error of a session of which no CUDA graph can be captured."""

from __future__ import annotations

from aotc.errors import AotcError


def capture_refused(why: str, where: str) -> AotcError:
    """AOTC-R024: ONNX Runtime, or a value on the CPU, does not allow a graph."""
    return AotcError("AOTC-R024", "a CUDA graph cannot be captured", where=where, found=why)
