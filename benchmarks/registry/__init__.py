"""Pulling from a registry on loopback, which the benchmark starts."""
