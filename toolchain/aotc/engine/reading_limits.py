"""Limits of reading graphs of artifacts that nobody verified: of pages and of comparisons."""

from __future__ import annotations

from typing import Final

from aotc.contract.profile import WorkerLimits

# A payload's weights are in files of their own, so a model that is larger has a graph that nobody
# reads, and takes minutes.
MAX_MODEL_BYTES: Final = 64 << 20
# Of the worker that reads one of them.
LIMITS: Final = WorkerLimits(seconds=120.0, memory_bytes=8 << 30)
