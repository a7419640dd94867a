"""Whom to trust, who signs, and what attestations say."""
