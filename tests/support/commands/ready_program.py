"""`aotc` for a shell, as a program in a folder of its path: a ready command where it can be one.

The program asks the process of `ready_server.py` for a command with its own streams, passes signals
on to it, and ends as it does.  It imports as little as it can, to start faster than what it is for.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import NoReturn

# What an interpreter, or a library that it loads, reads once at its start.
_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "OMP_", "OPENBLAS_", "ORT_")
# As jobs have it.
OF_THE_SERVER = {
    "PYTHONHASHSEED": "0",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
}
# To Python, these say nothing else than that there is no locale, and one of them it sets then.
_NO_LOCALE = dict.fromkeys(("LANG", "LC_ALL", "LC_CTYPE"), "C.UTF-8")


def is_plain(environment: Mapping[str, str]) -> bool:
    """Whether nothing in it changes how Python starts, but for its path."""
    same = {**OF_THE_SERVER, **_NO_LOCALE}
    return all(
        same.get(name) == text
        for name, text in environment.items()
        if name.startswith(_AT_START) and name != "PYTHONPATH"
    )


def run(address: str, script: str, toolchain: str) -> NoReturn:
    """Be the command that was typed: from the server at `address`, or started by its `script`."""
    words = [script, *sys.argv[1:]]
    environment = dict(os.environ)
    if environment.get("PYTHONPATH") != toolchain or not is_plain(environment):
        os.execv(script, words)
    told, theirs = os.pipe()
    # Not by pathlib, which takes longer to import than all of the above.
    folder = os.getcwd()  # noqa: PTH109
    request = {"words": words, "folder": folder, "environment": environment, "path": []}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.connect(address)
        socket.send_fds(control, [json.dumps(request).encode()], [0, 1, 2, theirs])
    os.close(theirs)
    with os.fdopen(told) as answers:
        pid = int(answers.readline())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        status = int(answers.readline())
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
