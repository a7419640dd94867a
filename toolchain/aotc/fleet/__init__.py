"""Builds many models for many targets: plans, executors, and reports over all of them."""
