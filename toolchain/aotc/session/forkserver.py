"""A server process that imports what jobs need and forks a fresh process for each job.

Importing numpy, onnx and onnxruntime costs more than most jobs.  The server imports them once and
never creates a session, so every fork starts from the same clean state.  Requests and responses are
JSON lines over its standard input and output; it ends, with all its children, when its input ends.

Modules for later jobs are imported one at a time while the first job runs and no request waits;
otherwise each fork would import them itself.

A job that runs jobs of its own forks their server from itself, as it has imported everything.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from aotc.session.worker import work

_FIRST_IMPORTS = ("numpy", "onnx", "onnx.numpy_helper", "aotc.session.capture")
# The first job of a build only reads a model.
_BACKGROUND_IMPORTS = ("onnxruntime",)
# prctl(2): the signal for a process whose parent dies.
_PR_SET_PDEATHSIG = 1


class ForkServer:
    """The client of a server process: use with `with`, then call `run` from any thread."""

    def __init__(
        self,
        environment: Mapping[str, str],
        background_imports: Sequence[str] = (),
        *,
        forked: bool = False,
        python: str = sys.executable,
    ) -> None:
        """`background_imports` are modules that jobs after the first will import.

        The server is a new process of `python`, an interpreter that has aotc.  With `forked` it is
        forked from this process, which must have one thread, no session, and the environment for
        the jobs.
        """
        self._environment = dict(environment)
        self._background_imports = tuple(background_imports)
        self._forked = forked
        self._python = python
        self._lock = threading.Lock()
        self._jobs: dict[int, _Job] = {}
        self._count = 0
        self._closed = False

    def __enter__(self) -> ForkServer:
        serves = partial(serve, self._background_imports)
        self._process: _Server = _Fork(serves) if self._forked else self._new_server()
        self._reader = threading.Thread(target=self._read_messages, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _new_server(self) -> _Server:
        return subprocess.Popen(
            [self._python, "-P", "-m", "aotc.session.forkserver", *self._background_imports],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def ended(self) -> bool:
        """Whether the server has ended, so that no more jobs can run."""
        return self._closed

    def run(self, folder: Path, log: str, arguments: list[Any], timeout: float) -> int | None:
        """Run `worker.work(*arguments)` in a forked process in `folder`; returns its exit status.

        Its output goes to the file `log`.  A negative status is a signal, as with subprocess; None
        means that it was killed because it ran longer than `timeout` seconds.
        """
        with self._lock:
            if self._closed:
                return -signal.SIGKILL
            self._count += 1
            number = self._count
            job = self._jobs[number] = _Job()
            request = {"id": number, "folder": str(folder), "log": log, "arguments": arguments}
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                self._closed = True
                return -signal.SIGKILL
        try:
            if not job.ended.wait(timeout):
                return None
            return job.status
        finally:
            # The process group outlives its leader if the job left children behind.
            if job.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(job.pid, signal.SIGKILL)
                job.ended.wait(10.0)

    def failure_status(self) -> int | None:
        """The exit status of the server if it ended by itself and not by a signal; else None."""
        if not self._closed:
            return None
        try:
            # Its end of the pipe closes slightly before the process ends.
            status = self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            return None
        return status if status > 0 else None

    def _read_messages(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            with self._lock:
                job = self._jobs[message["id"]]
            if "pid" in message:
                job.pid = message["pid"]
            else:
                job.status = message["status"]
                job.ended.set()
        self._close()

    def _close(self) -> None:
        """Wake up everyone who waits for a job: the server has ended or is about to."""
        with self._lock:
            self._closed = True
            for job in self._jobs.values():
                job.ended.set()


class _Server(Protocol):
    """The part of `subprocess.Popen` that the client of a server needs."""

    pid: int

    @property
    def stdin(self) -> IO[bytes] | None: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class _Fork:
    """A process forked from this one, in its own session, that calls `main` and ends."""

    def __init__(self, main: Callable[[], None]) -> None:
        requests, to_server = os.pipe()
        from_server, answers = os.pipe()
        in_session, has_session = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            status = 1
            # Whatever happens, the copy of the caller must not continue.
            try:
                os.setsid()
                os.close(in_session)
                os.close(has_session)
                null = os.open(os.devnull, os.O_WRONLY)
                for source, target in ((requests, 0), (answers, 1), (null, 2)):
                    os.dup2(source, target)
                for descriptor in (requests, to_server, from_server, answers, null):
                    os.close(descriptor)
                main()
                status = 0
            finally:
                os._exit(status)
        os.close(requests)
        os.close(answers)
        os.close(has_session)
        # A caller that leaves at once kills the process group, which must exist by then.
        os.read(in_session, 1)
        os.close(in_session)
        self.stdin: IO[bytes] = os.fdopen(to_server, "wb")
        self.stdout: IO[bytes] = os.fdopen(from_server, "rb")
        self._status: int | None = None
        self._wait_lock = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """The exit status (negative: a signal); raises `TimeoutExpired` after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            # Several threads may wait at the end; only one of them can reap the process.
            with self._wait_lock:
                if self._status is None:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                    if pid:
                        self._status = os.waitstatus_to_exitcode(status)
                if self._status is not None:
                    return self._status
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("", timeout or 0.0)
            time.sleep(0.002)


class _Job:
    def __init__(self) -> None:
        self.pid = 0
        self.status = -signal.SIGKILL
        self.ended = threading.Event()


def serve(background_imports: Sequence[str] = ()) -> None:
    """Fork a process for each request on standard input until it ends."""
    for name in _FIRST_IMPORTS:
        _import(name)
    imports = [*_BACKGROUND_IMPORTS, *background_imports]
    any_started = False
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(waker)
    children: dict[int, int] = {}
    server = os.getpid()
    pending = b""
    while True:
        idle = any_started and bool(imports)
        ready, _, _ = select.select([0, wake], [], [], 0.0 if idle else None)
        if not ready:
            _import(imports.pop(0))
            continue
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
        _report_ended(children)
        if 0 not in ready:
            continue
        data = os.read(0, 1 << 16)
        if not data:
            break
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            pid = os.fork()
            if not pid:
                _set_up_job_process(request, server, wake, waker)
                work(*request["arguments"])
                os._exit(0)
            children[pid] = request["id"]
            any_started = True
            _send({"id": request["id"], "pid": pid})
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _import(name: str) -> None:
    from importlib import import_module

    # The job that needs the module reports what is missing.
    with contextlib.suppress(ImportError):
        import_module(name)


def _report_ended(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        _send({"id": children.pop(pid), "status": os.waitstatus_to_exitcode(status)})


def _send(message: Mapping[str, int]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _set_up_job_process(request: Mapping[str, Any], server: int, *pipes: int) -> None:
    """In the child: its own session, folder and log, and no connection to the server."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for pipe in pipes:
        os.close(pipe)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:
            # The server died before the call above.
            os._exit(1)
    os.chdir(request["folder"])
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(null)
    os.close(log)


if __name__ == "__main__":
    serve(sys.argv[1:])
