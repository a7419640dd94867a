"""What warms a variant up besides its fixtures: captured sizes, and inputs of a size."""
