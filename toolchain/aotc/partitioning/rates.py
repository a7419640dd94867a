"""Rough speeds of a device, by which partitions are weighed."""

from __future__ import annotations

from aotc.records import record


@record
class Rates:
    """Rough speeds of a device per second, to weigh a partition against its transfers."""

    flops: float
    bytes: float
    transfer_bytes: float
    transfer_seconds: float
