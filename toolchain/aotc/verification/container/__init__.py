"""Reading the files of an artifact, from a folder or a packed file, and nothing outside it."""
