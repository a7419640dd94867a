"""Shutting a process in: no network, no writing but in its folder, no starting of programs.

What reads a stranger's file runs no code of it, as far as anyone knows; this is for what nobody
knows yet, such as an operator of PyTorch with a fault.  Nothing needs privileges: a namespace of
users grants one of networks, and Landlock restricts whoever asks for it.  Where the system grants
neither, the process goes on, and says so.  Both are for good, and for this thread and what it
starts: call them in a process of one thread.  What is left are sockets that have a path: a service
of this machine which listens on one that this user may open.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from aotc.spec.framework_capture import Network

# sched(7), and the numbers of landlock(7)'s calls, which all architectures share.
_NEW_NETWORK: Final = 0x40000000
_NEW_USERS: Final = 0x10000000
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_NO_NEW_PRIVILEGES: Final = 38
# Rights by bit: execute, write a file, read a file, read a folder, then removing and making of all
# kinds up to 12; linking across folders since version 2, truncating since 3.
_EXECUTE: Final = 1 << 0
_WRITE: Final = 1 << 1
_CHANGES: Final = sum(1 << bit for bit in range(4, 13))
_SINCE: Final = ((2, 1 << 13), (3, 1 << 14))
_TRUNCATE: Final = 1 << 14
# Sockets without a file, and signals, of processes that are not shut in with it: since version 6.
_SCOPED_SINCE: Final = 6
_SCOPED: Final = 0b11
_ON_THE_WAY: Final = getattr(os, "O_PATH", 0) | getattr(os, "O_CLOEXEC", 0)


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def without_network() -> Network:
    """Leave the network, for good; returns `none`, or `open` where the system does not grant it."""
    if sys.platform != "linux":
        return "open"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK) != 0:
        user, group = os.getuid(), os.getgid()
        if libc.unshare(_NEW_USERS | _NEW_NETWORK) != 0:
            return "open"
        # Without a map, this user is nobody.
        with contextlib.suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    return "none" if _interfaces() <= {"lo"} else "open"


def _interfaces() -> set[str]:
    import socket

    return {name for _, name in socket.if_nameindex()}


def only_writing_in(folder: Path) -> bool:
    """Write only in `folder` from now on, and start no program; false where that is not granted.

    Temporary files are made in it, too.  Since Linux 6.12 no other process gets a signal of it.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    call = libc.syscall
    call.restype = ctypes.c_long
    version = call(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    if version < 1:
        return False
    handled = _EXECUTE | _WRITE | _CHANGES
    handled |= sum(right for since, right in _SINCE if version >= since)
    rules = _Ruleset(handled, 0, _SCOPED if version >= _SCOPED_SINCE else 0)
    # Of those that are longer than it knows, an older kernel takes what is zero behind.
    ruleset = call(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(ctypes.sizeof(rules)), 0)
    if ruleset < 0:
        return False
    try:
        allowed = handled & ~_EXECUTE
        granted = all(
            _allow(call, ruleset, path, rights)
            for path, rights in (
                (folder, allowed),
                (Path(os.devnull), allowed & (_WRITE | _TRUNCATE)),
            )
        )
        return (
            granted
            and libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
            and call(_RESTRICT_SELF, ruleset, 0) == 0
            and _temporary_in(folder)
        )
    finally:
        os.close(ruleset)


def _allow(call: ctypes._NamedFuncPointer, ruleset: int, path: Path, rights: int) -> bool:
    place = os.open(path, _ON_THE_WAY)
    try:
        rule = _Beneath(rights, place)
        return bool(call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0) == 0)
    finally:
        os.close(place)


def _temporary_in(folder: Path) -> bool:
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return True
