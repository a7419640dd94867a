"""Describing artifacts, models, codes and providers; nothing said here is verified."""
