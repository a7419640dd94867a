"""The gate that an artifact must pass before it is loaded: integrity, trust and compatibility."""
