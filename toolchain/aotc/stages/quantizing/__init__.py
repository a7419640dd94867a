"""Quantized graphs for variants: calibration data, observed ranges, and the pass that uses them."""
