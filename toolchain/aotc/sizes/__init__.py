"""The sizes and values at which the original model runs, and its outputs there."""
