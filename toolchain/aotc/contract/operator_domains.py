"""Domains of operators, as models spell them."""

from __future__ import annotations

from typing import Final

STANDARD: Final = ("", "ai.onnx")
"""Both spellings of the ONNX standard's own."""
