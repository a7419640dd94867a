"""Loads artifacts and runs them: guards, routing, warm-up, telemetry, and the loaded model."""
