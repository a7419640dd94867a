"""Models that nobody here wrote, in a folder that is no part of the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

MODELS = Path(os.environ.get("AOTC_MODELS") or "/nonexistent")
MISSING = (
    ""
    if (MODELS / "MANIFEST.json").is_file()
    else "AOTC_MODELS names no folder of third-party models, with its MANIFEST.json"
)
needs_models = pytest.mark.skipif(bool(MISSING), reason=MISSING)
