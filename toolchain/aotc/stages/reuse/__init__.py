"""Reusing what was built before, from the build cache."""
