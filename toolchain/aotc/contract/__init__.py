"""Records and wire formats: the standard library, PyYAML and rfc8785 only."""
