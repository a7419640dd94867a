"""Profiles learned from recorded shapes, on measured cost."""
