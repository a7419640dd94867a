"""What was observed of an activation on calibration data."""

from __future__ import annotations

from aotc.records import record


@record(kw_only=False)
class Observed:
    """The range of its values, None if one was not finite, and its largest shape."""

    bounds: tuple[float, float] | None
    shape: tuple[int, ...]
