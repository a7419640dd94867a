"""Signatures: DSSE envelopes, the OMS signature, in-toto statements, provenance, SBOM, keys."""
