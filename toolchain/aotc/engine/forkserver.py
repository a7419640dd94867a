"""A process that has imported what jobs need, and forks a fresh one for each job.

Importing numpy, onnx and onnxruntime costs more than most jobs.  The server imports them once and
never creates a session, so every fork starts from the same clean state.  Requests and answers are
JSON lines over its standard input and output; it ends, with all its children, at end of input.

The modules of later jobs are imported while the first one runs, one at a time, when nobody asks:
else each fork would import them for itself.

A job that has jobs of its own forks their server from itself, where it has imported all already.
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
from pathlib import Path
from typing import IO, Any, Protocol

from aotc.engine.worker import work

_PRELOAD = ("numpy", "onnx", "onnx.numpy_helper", "aotc.graphs.capture")
# The first job of a build reads a model and runs none.
_LATER = ("onnxruntime",)
# prctl(2): the signal that a process gets when its parent dies.
_PR_SET_PDEATHSIG = 1


class ForkServer:
    """The near end: start with `with`, then `run` from any thread."""

    def __init__(
        self, environment: Mapping[str, str], later: Sequence[str] = (), *, forked: bool = False
    ) -> None:
        """`later` are modules that jobs after the first will import.

        `forked`: the server is forked from this process, which has one thread, no session, and
        the environment that jobs are to have; else it is a new one.
        """
        self._environment = dict(environment)
        self._later = tuple(later)
        self._forked = forked
        self._lock = threading.Lock()
        self._answers: dict[int, _Answer] = {}
        self._count = 0
        self._closed = False

    def __enter__(self) -> ForkServer:
        self._process = self._forked_server() if self._forked else self._new_server()
        self._reader = threading.Thread(target=self._read, daemon=True)
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
            [sys.executable, "-P", "-m", "aotc.engine.forkserver", *self._later],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _forked_server(self) -> _Server:
        return _Fork(lambda: serve(self._later))

    @property
    def gone(self) -> bool:
        """Whether the server has ended, so that no job can run any more."""
        return self._closed

    def run(self, folder: Path, log: str, arguments: list[Any], timeout: float) -> int | None:
        """Fork a process in `folder` that calls `worker.work(*arguments)`; its wait status.

        Its output goes to the file `log`.  A negative status is a signal, as with subprocess;
        None means that it was killed for running longer than `timeout` seconds.
        """
        with self._lock:
            if self._closed:
                return -signal.SIGKILL
            self._count += 1
            number = self._count
            answer = self._answers[number] = _Answer()
            request = {"id": number, "folder": str(folder), "log": log, "arguments": arguments}
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                self._closed = True
                return -signal.SIGKILL
        try:
            if not answer.ended.wait(timeout):
                return None
            return answer.status
        finally:
            # The group outlives its leader where a job left children behind.
            if answer.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(answer.pid, signal.SIGKILL)
                answer.ended.wait(10.0)

    def failed(self) -> int | None:
        """Exit status of the server where it ended by itself, and by no signal; else None."""
        if not self._closed:
            return None
        try:
            # Its end of the pipe closes a moment before it is gone.
            status = self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            return None
        return status if status > 0 else None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            with self._lock:
                answer = self._answers[message["id"]]
            if "pid" in message:
                answer.pid = message["pid"]
            else:
                answer.status = message["status"]
                answer.ended.set()
        self._close()

    def _close(self) -> None:
        """Nobody waits for an answer from here on: the server is gone, or is about to be."""
        with self._lock:
            self._closed = True
            for answer in self._answers.values():
                answer.ended.set()


class _Server(Protocol):
    """What of `subprocess.Popen` a server's near end needs."""

    pid: int

    @property
    def stdin(self) -> IO[bytes] | None: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class _Fork:
    """A process forked from this one, in a session of its own, that calls `main` and ends."""

    def __init__(self, main: Callable[[], None]) -> None:
        requests, to_server = os.pipe()
        from_server, answers = os.pipe()
        in_session, has_session = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            status = 1
            # Whatever happens, the copy of the caller does not go on.
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
        # Whoever leaves at once ends its group, and there must be one by then.
        os.read(in_session, 1)
        os.close(in_session)
        self.stdin: IO[bytes] = os.fdopen(to_server, "wb")
        self.stdout: IO[bytes] = os.fdopen(from_server, "rb")
        self._status: int | None = None
        self._waiting = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, negative for a signal; `TimeoutExpired` after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            # Whoever leaves and whose job was cut off wait side by side; one of them can reap it.
            with self._waiting:
                if self._status is None:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                    if pid:
                        self._status = os.waitstatus_to_exitcode(status)
                if self._status is not None:
                    return self._status
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("", timeout or 0.0)
            time.sleep(0.002)


class _Answer:
    def __init__(self) -> None:
        self.pid = 0
        self.status = -signal.SIGKILL
        self.ended = threading.Event()


def serve(later: Sequence[str] = ()) -> None:
    """Fork a process for each request on standard input until it ends."""
    for name in _PRELOAD:
        _import(name)
    waiting = [*_LATER, *later]
    began = False
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
        idle = began and bool(waiting)
        ready, _, _ = select.select([0, wake], [], [], 0.0 if idle else None)
        if not ready:
            _import(waiting.pop(0))
            continue
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
        _reap(children)
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
                _become(request, server, wake, waker)
                work(*request["arguments"])
                os._exit(0)
            children[pid] = request["id"]
            began = True
            _say({"id": request["id"], "pid": pid})
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _import(name: str) -> None:
    from importlib import import_module

    # The job that needs it says what is missing.
    with contextlib.suppress(ImportError):
        import_module(name)


def _reap(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        _say({"id": children.pop(pid), "status": os.waitstatus_to_exitcode(status)})


def _say(message: Mapping[str, int]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _become(request: Mapping[str, Any], server: int, *pipes: int) -> None:
    """In the child: a session of its own, its folder, its log, and no way to the server."""
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
            # It died before the signal was asked for.
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
