"""Jobs for the tests of the fork server."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from aotc.base.errors import AotcError
from aotc.session.worker import tell_steps
from aotc.session.worker_pool import Workers
from aotc.sizes.trials import cpu_deadline, cpu_limit
from aotc.spec.profile import WorkerLimits


def double(request: int) -> int:
    return request * 2


def tell(request: int) -> int:
    for number in range(request):
        tell_steps(number, request)
    return request


def who(_: Any) -> int:
    time.sleep(0.05)
    return os.getpid()


def crash(_: Any) -> None:
    sys.stderr.write("about to die\n")
    sys.stderr.flush()
    os.abort()


def leave(_: Any) -> None:
    os._exit(3)


def reap(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def quit_like_libjpeg(_: Any) -> None:
    sys.stderr.write("Not a JPEG file: starts with 0xc4 0x07\n")
    sys.stderr.flush()
    os._exit(1)


def quit_like_python(_: Any) -> None:
    sys.stderr.write("Traceback\nTypeError: of the worker's own\n")
    sys.stderr.flush()
    os._exit(1)


def unspeakable(_: Any) -> Any:
    return {"name": b"\xbd\xda"}


def unwritable(_: Any) -> int:
    # The result cannot be written where a folder is.
    Path("result.json.part").mkdir()
    return 1


def refused(_: Any) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with contextlib.ExitStack() as files:
        while True:
            files.enter_context(Path(os.devnull).open())


def ring(_: Any) -> None:
    with cpu_limit(0.05):
        while True:
            pass


def wait(_: Any) -> None:
    with cpu_limit(0.2):
        time.sleep(1.0)


def late(_: Any) -> list[bool]:
    found, is_late = [], cpu_deadline(0.2)
    time.sleep(0.5)
    found.append(is_late())
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    return [*found, is_late()]


def swell(_: Any) -> int:
    return len(bytearray(4 << 30))


def fill(_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def refuse(_: Any) -> None:
    raise AotcError("AOTC-S001", "no size")


def bug(_: Any) -> float:
    return 1 / 0


def hang(_: Any) -> None:
    child = subprocess.Popen(["sleep", "600"])
    Path("part").write_text(str(child.pid))
    Path("part").rename("child")
    time.sleep(600)


def environment(_: Any) -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in ("ORT_LOAD_CONFIG_FROM_MODEL", "PYTHONHASHSEED")}


def jobs_below(names: list[str]) -> list[Any]:
    """Results, or codes, of jobs that a job runs itself."""
    found: list[Any] = []
    with Workers(WorkerLimits(), forked=True) as workers:
        for name in names:
            try:
                folder = Path(name).resolve()
                found.append(workers.run(f"forked_jobs:{name}", 21, folder=folder).value)
            except AotcError as error:
                found.append(error.code)
    return found


def left_below(_: Any) -> str:
    """Leave while jobs run; each of them waits for the server's end."""
    for turn in range(20):
        with Workers(WorkerLimits(parallel=8), forked=True) as workers:
            folders = [Path(f"{turn}-{index}").resolve() for index in range(8)]
            for item in folders:
                workers.submit(workers.run, "forked_jobs:hang", None, folder=item)
            while not all((item / "request.json").exists() for item in folders):
                time.sleep(0.001)
    return "left"


def left_at_once(_: Any) -> str:
    """Leave before the server has started completely: it ends in any case."""
    for _turn in range(100):
        with Workers(WorkerLimits(), forked=True):
            pass
    return "left"


def server(_: Any) -> int:
    return os.getppid()


def fell(_: Any) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)
