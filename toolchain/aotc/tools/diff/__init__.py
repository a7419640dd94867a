"""Comparing two artifacts: what changed from one to the other; nothing said here is verified."""
