"""Commands that start at once: forked from a process that has imported everything.

Starting Python and importing what a command needs takes longer than most commands.  The fork is a
separate process, the leader of its session, with its own streams, environment and folder, and runs
the console script.  This does not test what a command imports, nor how fast: those tests start a
new Python.  With `AOTC_TESTS_START=anew` every test does.

A shell starts them by the program that `write_program` writes.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from ready_program import OF_THE_SERVER, is_plain
from repository import TOOLCHAIN

_SERVER: Final = Path(__file__).with_name("ready_server.py")
_ENVIRONMENT: Final = {"PYTHONPATH": str(TOOLCHAIN), **OF_THE_SERVER}
_SCRIPT: Final = Path(sys.executable).with_name("aotc")


class ReadyCommand:
    """A running command, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        """Fork it; `may_be_ready` must hold of its environment."""
        self.args = list(words)
        self.returncode: int | None = None
        out, err, told = os.pipe(), os.pipe(), os.pipe()
        null = os.open(os.devnull, os.O_RDONLY)
        request = {
            "words": self.args,
            "folder": str(folder),
            "environment": dict(environment),
            "path": _more_path(environment),
        }
        _server().send(request, (null, out[1], err[1], told[1]))
        for descriptor in (null, out[1], err[1], told[1]):
            os.close(descriptor)
        self._told = os.fdopen(told[0], "rb", buffering=0)
        self.pid = int(self._told.readline())
        self.stdout: IO[str] = os.fdopen(out[0], encoding="utf-8")
        self.stderr: IO[str] = os.fdopen(err[0], encoding="utf-8")
        self._reading: list[threading.Thread] = []
        self._read = ["", ""]

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            line = self._told.readline()
            assert line, "the process that forks commands is gone"
            self.returncode = int(line)
            self._told.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status after the command has ended; `TimeoutExpired` after `timeout` seconds."""
        if self.returncode is None and not select.select([self._told], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        status = self.poll()
        assert status is not None
        return status

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """The output until the end; `TimeoutExpired` after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        if not self._reading:
            self._reading = [
                threading.Thread(target=self._drain, args=pair, daemon=True)
                for pair in enumerate((self.stdout, self.stderr))
            ]
            for item in self._reading:
                item.start()
        for item in self._reading:
            item.join(None if until is None else max(0.0, until - time.monotonic()))
            if item.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        self.wait(None if until is None else max(0.0, until - time.monotonic()))
        return self._read[0], self._read[1]

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the command has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """As on shutdown of the system."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """At once."""
        self.send_signal(signal.SIGKILL)

    def _drain(self, number: int, stream: IO[str]) -> None:
        with stream:
            self._read[number] = stream.read()


def may_be_ready(environment: Mapping[str, str]) -> bool:
    """Whether a command in this environment can be forked and behave like a started one."""
    if _starts_anew() or not is_plain(environment):
        return False
    return not any(_replaces(folder) for folder in _more_path(environment))


def write_program(folder: Path, script: Path = _SCRIPT) -> None:
    """Write a program that runs a script of Python's, for a shell that has `folder` in its path."""
    program = folder / script.name
    if _starts_anew():
        program.symlink_to(script)
        return
    words = (_server().address, str(script), str(TOOLCHAIN))
    program.write_text(
        f"#!{sys.executable} -IS\n"
        "import sys\n\n"
        f"sys.path.append({str(_SERVER.parent)!r})\n\n"
        "from ready_program import run\n\n"
        f"run{words!r}\n",
        "utf-8",
    )
    program.chmod(0o755)


def _starts_anew() -> bool:
    return os.environ.get("AOTC_TESTS_START") == "anew" or sys.platform != "linux"


def _more_path(environment: Mapping[str, str]) -> list[str]:
    """Folders of the Python path that the server's path lacks."""
    parts = environment.get("PYTHONPATH", "").split(os.pathsep)
    return [part for part in parts if part not in ("", str(TOOLCHAIN))]


def _replaces(folder: str) -> bool:
    """Whether a folder has other modules in place of those that the server has imported."""
    names = {item.name.partition(".")[0] for item in Path(folder).iterdir()}
    return not names.isdisjoint({"usercustomize", *_server().modules} - {"sitecustomize"})


class _Server:
    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        folder = tempfile.mkdtemp(prefix="ready-")
        atexit.register(shutil.rmtree, folder)
        # By this path, other processes ask for commands.
        self.address = f"{folder}/socket"
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(self.address)
            listening.listen()
            passed = (theirs.fileno(), listening.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_SERVER), *map(str, passed)],
                env={"PATH": os.environ.get("PATH", ""), **_ENVIRONMENT},
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
            )
        atexit.register(self._end)
        answer = self._control.recv(1 << 20)
        assert answer, "the process that forks commands has not come up"
        self.modules = frozenset(json.loads(answer))

    def send(self, request: Mapping[str, object], descriptors: Sequence[int]) -> None:
        """Ask for a command."""
        with self._lock:
            socket.send_fds(self._control, [json.dumps(request).encode()], list(descriptors))

    def _end(self) -> None:
        self._control.close()
        self._process.wait()


@functools.cache
def _server() -> _Server:
    return _Server()
