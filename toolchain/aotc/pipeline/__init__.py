"""The build: its stages in order, what is tried again, tuned and reused."""
