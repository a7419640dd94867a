"""Choosing variants by measurement."""
