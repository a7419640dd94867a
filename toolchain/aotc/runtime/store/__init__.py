"""Stores: installed artifacts, verified and read-only, by the digest of their manifest."""
