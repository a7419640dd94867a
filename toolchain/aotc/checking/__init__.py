"""Checks folders of models: each is built in a sandbox, and its answers are compared."""
