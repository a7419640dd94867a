"""Installed artifacts, verified and read-only, by the digest of their manifest.

Where stores are, and whose they have to be, says `verification/stores.py`: who verifies looks
into them as well.
"""
