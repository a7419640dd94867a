"""Runs commands as a unit's or a container's are run: in its root, as its user, with its limits.

`unshare --mount --propagation private python confined.py SETTING COMMAND…`, where SETTING is JSON.
It takes the administrator.  Not done: namespaces of users, networks and processes, devices, and
filters of addresses.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_NO_NEW_PRIVS, _MDWE, _MDWE_REFUSE = 38, 65, 1
_ALLOW, _EPERM = 0x7FFF0000, 0x00050000 | 1


def main() -> None:
    """Enter the root, become the user, give up the rest, and start the command."""
    setting = json.loads(sys.argv[1])
    root = Path(setting["root"])
    library = ctypes.util.find_library("seccomp")
    seccomp = None if library is None else ctypes.CDLL(library)
    libc = ctypes.CDLL(None, use_errno=True)

    _mount("--bind", str(root), str(root))
    for place in setting["read_only"]:
        inside = root / place.lstrip("/")
        _mount("--rbind", place, str(inside))
    # As ProtectSystem=strict: all but what follows.
    _mount("-o", "remount,bind,ro", str(root))
    for place in setting["read_only"]:
        _mount("-o", "remount,bind,ro", str(root / place.lstrip("/")))
    for place in ("/dev", "/proc"):
        _mount("--rbind", place, str(root / place.lstrip("/")))
    for place in setting["writable"]:
        inside = str(root / place.lstrip("/"))
        _mount("--bind", inside, inside)
        _mount("-o", "remount,bind,rw", inside)
    os.chroot(root)
    os.chdir(setting["directory"])
    os.umask(setting["umask"])
    os.setgroups([])
    os.setresgid(*[setting["user"]] * 3)
    os.setresuid(*[setting["user"]] * 3)
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
    # Linux 6.3 and later; before that systemd has a filter of its own.
    if setting["no_writable_code"]:
        libc.prctl(_MDWE, _MDWE_REFUSE, 0, 0, 0)
    if seccomp is not None and setting["system_calls"]:
        _allow_only(seccomp, setting["system_calls"])
    command = sys.argv[2:]
    os.execve(command[0], command, setting["environment"])


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def _allow_only(seccomp: Any, names: list[str]) -> None:
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(_EPERM)))
    for name in names:
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            seccomp.seccomp_rule_add(context, ctypes.c_uint32(_ALLOW), number, 0)
    if seccomp.seccomp_load(context):
        raise OSError("seccomp_load")


if __name__ == "__main__":
    main()
