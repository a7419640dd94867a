"""Artifacts of the residual network, and inputs for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from networks import residual
from on_gpu import Built, built

CAPTURED = {"batch": {"buckets": [1, 4], "max": 64, "outside": ["pad", "route"]}}
EXACT = {"batch": {"min": 1, "opt": 4, "max": 64}}


def residual_artifact(folder: Path, dims: dict[str, Any], **options: Any) -> Built:
    """The network in float32, built for CUDA."""
    network = folder / "residual.onnx"
    network.write_bytes(residual(18, np.float32, width=16, blocks=3))
    return built(network, folder, dims, **options)


def image(batch: int, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """An input."""
    rng = np.random.default_rng((batch, seed))
    return {"image": rng.standard_normal((batch, 3, 224, 224)).astype(np.float32)}
