"""Settings of the optimizer: the operator set, the level, and integer products that saturate."""
