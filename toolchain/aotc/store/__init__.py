"""Stores: folders of installed artifacts, verified and read-only, by the digest of their manifest.

Where stores are, and who has to own them, is in `verification/stores.py`, as verifying also looks
there.
"""
