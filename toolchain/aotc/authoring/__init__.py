"""Trust policies and root keys as they are written and changed."""
