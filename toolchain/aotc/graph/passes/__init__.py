"""Graph passes, one per file, or a folder if a pass needs several files."""
