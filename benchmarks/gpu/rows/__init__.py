"""Measurements: each names its cases, and measures those that are not kept yet."""
