"""Signatures: DSSE envelopes, the OMS signature, other in-toto attestations, and who signed."""
