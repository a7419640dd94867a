"""Loads artifacts and runs them: sessions, guards, routing, and the ready model."""
