"""Keys and certificates: made, loaded, kept under passwords, or held by another program."""
