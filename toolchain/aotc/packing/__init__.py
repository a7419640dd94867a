"""Packing an artifact into one file for transport, and unpacking it."""
