"""Paths in the repository, independent of the working folder."""

from __future__ import annotations

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
ROOT = SUPPORT.parents[1]
TOOLCHAIN = ROOT / "toolchain"
