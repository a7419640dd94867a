"""Keyless signing: identity tokens, and the sigstore services that certify short-lived keys."""
