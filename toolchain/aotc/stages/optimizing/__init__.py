"""What the optimizer is told: the operator set, the level, and integer products that saturate."""
