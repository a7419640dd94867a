"""Graph passes, one a file, or a folder where it takes several."""
