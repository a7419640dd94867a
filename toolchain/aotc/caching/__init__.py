"""The build cache: what was compiled once is not compiled again."""
