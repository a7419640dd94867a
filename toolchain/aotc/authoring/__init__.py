"""Writing, changing and signing trust policies and root keys."""
