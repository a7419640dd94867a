"""The closed stages of a build, one a file."""
