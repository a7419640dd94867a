"""Graph passes: those of one stage in a file, and larger ones in a file or folder of their own."""
