"""The gate that an artifact passes before it is loaded: read, authentic, allowed, compatible."""
