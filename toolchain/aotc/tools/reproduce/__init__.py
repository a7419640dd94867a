"""Building an artifact again: what it records, the environment made of that, and what differs."""
