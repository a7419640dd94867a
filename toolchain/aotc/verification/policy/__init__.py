"""Trust policies: reading them, checking their signatures, and applying them to artifacts."""
