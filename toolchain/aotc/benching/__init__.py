"""Measuring artifacts: latencies, time per node, comparison with a baseline, and history."""
