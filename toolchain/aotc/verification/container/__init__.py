"""An artifact as bytes: a folder or a packed file, read without leaving it."""
