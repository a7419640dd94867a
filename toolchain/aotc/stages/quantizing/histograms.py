"""Histograms of activations whose ranges are known, and narrower ranges that follow from them."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np

Range = tuple[float, float]
Array = np.ndarray[Any, Any]

# Bins by method.  The entropy method tries a range for each two bins, so its time grows with the
# square of their number: a fifth of a second for each activation.
BINS: Final = {"entropy": 1024, "percentile": 2048}
# Bins of the entropy method's quantized distribution.
_QUANTIZED_BINS: Final = 128


class Histogram:
    """How often values are in each of as many bins as the method has, of one width.

    `bounds` are the smallest and the largest value, which differ; values outside are left out.
    Bins of `percentile` span them; those of `entropy` are symmetric, as its search needs it.
    """

    def __init__(self, method: Literal["entropy", "percentile"], bounds: Range) -> None:
        self._method = method
        self._bounds = bounds
        most = max(abs(bound) for bound in bounds)
        span = bounds if method == "percentile" else (-most, most)
        self._edges = np.linspace(*span, BINS[method] + 1, dtype=np.float64)
        self._counts = np.zeros(BINS[method], np.int64)

    def add(self, values: Array) -> None:
        """Count values of any shape and floating-point type."""
        span = (self._edges[0], self._edges[-1])
        exact = values.astype(np.float32, copy=False)
        self._counts += np.histogram(exact, self._counts.size, range=span)[0]

    def range(self, percentile: float) -> Range:
        """The range by the method, within the bounds; `percentile` is without effect for others."""
        if not self._counts.any():
            return self._bounds
        found = self._entropy() if self._method == "entropy" else self._percentile(percentile)
        return max(found[0], self._bounds[0]), min(found[1], self._bounds[1])

    def _percentile(self, percentile: float) -> Range:
        """Half of what the percentile leaves is cut off on each side: the range is not symmetric.

        So does ONNX Runtime's `HistogramCollector.compute_percentile` if it is not symmetric; it
        ends at the lower edge of the last bin, this at the upper one.
        """
        below = np.cumsum(self._counts)
        total = int(below[-1])
        cut = total * (100.0 - percentile) / 200.0
        first = int(np.searchsorted(below, cut, side="right"))
        last = int(np.searchsorted(below, total - cut, side="left"))
        return float(self._edges[first]), float(self._edges[last + 1])

    def _entropy(self) -> Range:
        """The range of the least divergence from the values, by ONNX Runtime's own search.

        Its source is Migacz, "8-bit inference with TensorRT", GTC 2017.
        """
        from onnxruntime.quantization.calibrate import HistogramCollector

        search = HistogramCollector(
            method=self._method,
            symmetric=False,
            num_bins=self._counts.size,
            num_quantized_bins=_QUANTIZED_BINS,
            percentile=100.0,
            scenario="same",
        )
        low, high = (np.float64(bound) for bound in self._bounds)
        histogram = (self._counts, self._edges, low, high, np.float64(self._edges[-1]))
        least, largest = search.get_entropy_threshold(histogram, _QUANTIZED_BINS)
        return float(least), float(largest)
