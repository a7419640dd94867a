"""Loading from the store, guards, and the ready model."""
