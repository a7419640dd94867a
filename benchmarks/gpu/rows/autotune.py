"""Latency against torch.compile's max-autotune at one batch, which takes minutes to compile.

What it found is kept in a folder, so a second run is quick.
"""

from __future__ import annotations

from benchmarks.gpu.rows import latency
from benchmarks.gpu.run import Run


def run(run: Run) -> None:
    """Measure all wanted networks and precisions."""
    latency.measure(run, "autotune", latency.AUTOTUNED, latency.AUTOTUNE_SECONDS)
