"""The sections of a page, one a file."""
