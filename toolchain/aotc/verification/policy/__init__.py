"""Trust policies: read, checked against the roots, and applied to an artifact's attestations."""
