"""A process that has imported everything that commands need, and forks one for each request.

Usage: `ready_server.py SOCKET LISTENING`, descriptors of Unix sockets of packets; of the second,
each connection brings a request.  It has one thread, has called nothing of what it imported, and
ends with the first socket.  A request, as `ReadyCommand` writes it, has four descriptors: the three
standard streams, and a pipe for the process id and, once the process has ended, its exit status.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import aotc
from aotc.session import forkserver, worker_pool

# It needs the library of a GPU's maker as soon as it is imported.
_LEFT_OUT = "aotc.providers.tensorrt_rtx"
# What the modules of the toolchain import when they are called.
_WHEN_CALLED = (
    *("numpy", "onnx", "onnx.numpy_helper", "onnxruntime"),
    *("cyclonedx.contrib.license.factories", "cyclonedx.model.bom", "cyclonedx.model.tool"),
    *("cyclonedx.output.json", "packageurl"),
)
_FILES = 4096
serve_jobs = forkserver.serve


def serve() -> None:
    """Fork until the socket is closed."""
    control, listening = (socket.socket(fileno=int(word)) for word in sys.argv[1:])
    _import_all()
    names = sorted({name.partition(".")[0] for name in sys.modules})
    control.send(json.dumps(names).encode())
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(waker)
    pipes: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control, listening, wake], [], [])
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
        _reap(pipes)
        for asked in {control, listening}.intersection(ready):
            source = listening.accept()[0] if asked is listening else control
            data, descriptors, _, _ = socket.recv_fds(source, 1 << 20, 4)
            if source is not control:
                source.close()
            elif not data:
                return
            pid = os.fork()
            if not pid:
                _become(json.loads(data), descriptors[:3])
                _run_script(sys.argv[0])
            *streams, pipe = descriptors
            for stream in streams:
                os.close(stream)
            pipes[pid] = pipe
            _tell(pipe, pid)


def _import_all() -> None:
    for module in pkgutil.walk_packages(aotc.__path__, "aotc."):
        if module.name != _LEFT_OUT:
            import_module(module.name)
    for name in _WHEN_CALLED:
        import_module(name)
    assert threading.active_count() == 1
    # Else the collector of each fork writes to every page of what was imported.
    gc.collect()
    gc.freeze()


def _reap(pipes: dict[int, int]) -> None:
    while pipes:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        pipe = pipes.pop(pid)
        _tell(pipe, os.waitstatus_to_exitcode(status))
        os.close(pipe)


def _tell(pipe: int, number: int) -> None:
    # Nobody may listen any more.
    with contextlib.suppress(BrokenPipeError):
        os.write(pipe, f"{number}\n".encode())


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Set up what a process gets at its start; nothing else of the server stays open."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    for number, item in enumerate(streams):
        os.dup2(item, number)
    os.closerange(3, _FILES)
    os.chdir(request["folder"])
    _take_environment(request["environment"])
    sys.path[:0] = [item for item in request["path"] if item not in sys.path]
    _customize(request["path"])
    sys.argv = request["words"]
    sys.stdin = _stream(0, "r", "surrogateescape")
    sys.stdout = _stream(1, "w", "surrogateescape")
    sys.stderr = _stream(2, "w", "backslashreplace", line_buffering=True)
    worker_pool.ForkServer = _ForkedServer


def _customize(path: Sequence[str]) -> None:
    """Import the first `sitecustomize` of a path, as Python does at its start."""
    for item in path:
        if (module := Path(item, "sitecustomize.py")).exists():
            runpy.run_path(str(module))
            return


def _stream(number: int, mode: str, errors: str, *, line_buffering: bool = False) -> Any:
    """A standard stream as Python opens it in the C locale, with UTF-8."""
    binary = os.fdopen(number, f"{mode}b", closefd=False)
    return io.TextIOWrapper(
        binary, "utf-8", errors, line_buffering=line_buffering or binary.isatty()
    )


def _take_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    time.tzset()


class _ForkedServer(forkserver.ForkServer):
    """A command's server of jobs, forked from the command while it has no other thread.

    That of another environment is none of the command's.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *more: Any,
        forked: bool = False,
        python: str = sys.executable,
    ) -> None:
        may_fork = threading.active_count() == 1 and python == sys.executable
        super().__init__(environment, *more, forked=forked or may_fork, python=python)
        self._wanted = environment

    def __enter__(self) -> _ForkedServer:
        forkserver.serve = partial(_serve_jobs, self._wanted)
        super().__enter__()
        return self


def _serve_jobs(environment: Mapping[str, str], *background_imports: Any) -> None:
    os.closerange(3, _FILES)
    _take_environment(environment)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    serve_jobs(*background_imports)


def _run_script(script: str) -> NoReturn:
    """Run and end as Python does, without tearing down everything that is imported here."""
    status = 1
    try:
        runpy.run_path(script, run_name="__main__")
        status = 0
    except SystemExit as ended:
        status = int(ended.code or 0)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        status = 120
    os._exit(status)


if __name__ == "__main__":
    serve()
