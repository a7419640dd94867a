"""Attacks are made on the artifacts that the unit tests build."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "unit"))
