"""Programs whose clock starts before their first import: each runs as a fresh process."""
