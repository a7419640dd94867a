"""The stages of a build, one per file; this set is closed.  The last is `signing/sealing.py`."""
