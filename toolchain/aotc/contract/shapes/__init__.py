"""Dims: their names, ranges, relations and padding."""
