"""Keys, DSSE envelopes, the OMS signature and other in-toto attestations."""
