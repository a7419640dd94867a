"""Quantized graphs for variants: observed ranges, and the pass that uses them."""
