"""Signatures without a kept key: identity tokens, certificates of minutes, log entries."""
