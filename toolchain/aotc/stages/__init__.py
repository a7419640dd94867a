"""The closed stages of a build, one a file; the last, signing, is `signing/sealing.py`."""
