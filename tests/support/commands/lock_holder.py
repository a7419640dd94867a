"""Holds the lock of a file or folder until its input ends: `lock_holder.py PATH`."""

import fcntl
import os
import sys

descriptor = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(descriptor, fcntl.LOCK_SH if "--shared" in sys.argv else fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
