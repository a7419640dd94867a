"""Files as the operating system has them: locks, work folders, replacing, writing whole, errors.

The names in an artifact's folder stand here too, as who replaces or removes one goes by them.
"""
