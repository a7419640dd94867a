"""Domains of operators as models spell them, and the operator that stands for a compiled part."""

from __future__ import annotations

from typing import Final

STANDARD: Final = ("", "ai.onnx")
"""Both spellings of the ONNX standard's own."""
MICROSOFT: Final = "com.microsoft"
"""ONNX Runtime's."""
EP_CONTEXT: Final = "EPContext"
"""Of ONNX Runtime's domain: what an execution provider compiled, in place of its nodes."""
