"""Servers of examples/serve as processes on a loopback port, asked over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repository import ROOT

EXAMPLE = ROOT / "examples" / "serve"
# How long anything here may take before it is taken to hang.
SECONDS = 120.0
HEALTHY = 200
NOT_READY = 503


def free_port() -> int:
    """A port on which nothing listens now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass(frozen=True)
class Server:
    """A server that runs: its first process, its port, and what it has said so far."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def ask(self, path: str, body: object = None) -> tuple[int, Any]:
        """The status of an answer, and its JSON; the text of an answer that is none."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return int(answer.status), _content(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _content(error.read())

    def said(self, pattern: str) -> list[str]:
        """What of its log matches, or its first group."""
        return re.findall(pattern, self.log.read_text("utf-8"))

    def workers_that_said(self, pattern: str) -> set[str]:
        """The processes that logged it."""
        return set(self.said(rf"(?m)^\w+ (\d+) serve: .*{pattern}"))

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait for something to become true, as long as the server lives."""
        deadline = time.monotonic() + SECONDS
        while not until():
            assert self.process.poll() is None, self.log.read_text("utf-8")
            assert time.monotonic() < deadline, self.log.read_text("utf-8")
            time.sleep(0.02)

    def is_ready(self) -> bool:
        """Whether a worker that is ready answered."""
        return self._status("/healthz/ready") == HEALTHY

    def listens(self) -> bool:
        """Whether a worker answers at all."""
        return self._status("/healthz/live") == HEALTHY

    def _status(self, path: str) -> int | None:
        try:
            return self.ask(path)[0]
        except (urllib.error.URLError, ConnectionError):
            return None

    def wait_for_models(self, artifact_id: str, workers: int = 2) -> None:
        """Wait until an artifact answers in that many workers."""
        said = f"sha256-{artifact_id[:12]}.* answers from now on"
        self.wait(lambda: len(self.workers_that_said(said)) >= workers)

    def end(self) -> int:
        """The exit status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)


@contextmanager
def serving(
    folder: Path, program: str, *arguments: str, at: Path = EXAMPLE, **settings: str
) -> Iterator[Server]:
    """A server, started in `at` with these variables, its log and its store in `folder`.

    `{port}` in an argument is the port.  Whatever of it is left at the end is killed.
    """
    port, log = free_port(), folder / "server.log"
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AOTC_")}
    words = [word.replace("{port}", str(port)) for word in arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", program, *words],
            cwd=at,
            env={
                **kept,
                "PYTHONPATH": str(ROOT / "toolchain"),
                "PYTHONDONTWRITEBYTECODE": "1",
                "AOTC_STORE": str(folder / "store"),
                "AOTC_SYSTEM_STORE": "",
                **settings,
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Server(process, port, log)
    finally:
        # The group is this server's alone.
        if process.poll() is None or _is_there(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _content(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
