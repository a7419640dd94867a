"""The gate that an artifact passes before it is loaded, and what it knows of the host."""
