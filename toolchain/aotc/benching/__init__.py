"""Measuring artifacts: latencies, time per node, comparisons with an interval, and their history."""
