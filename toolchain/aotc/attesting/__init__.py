"""Statements that are added to an artifact that is there."""
