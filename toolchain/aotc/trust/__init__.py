"""Signing and verifying: keys, envelopes, statements, containers, and the gate before a load."""
