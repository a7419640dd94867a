"""Execution providers, one a file."""
