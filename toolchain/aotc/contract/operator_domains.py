"""Operator domains as models spell them, and the operator of compiled parts."""

from __future__ import annotations

from typing import Final

STANDARD: Final = ("", "ai.onnx")
"""Both spellings of the ONNX standard's domain."""
MICROSOFT: Final = "com.microsoft"
"""ONNX Runtime's domain."""
EP_CONTEXT: Final = "EPContext"
"""The operator in ONNX Runtime's domain that replaces nodes which a provider compiled."""
