"""Runs with buffers that stay on a device: memory, copies, captured graphs, bound calls."""
