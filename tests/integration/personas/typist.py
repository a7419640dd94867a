"""Somebody at a shell, in an empty folder and with an empty home, who never ran aotc before."""

from __future__ import annotations

import os
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

from ready_command import write_program
from repository import ROOT, TOOLCHAIN

# Generous: a machine may be busy, and only what is broken takes so long.
SECONDS = 180.0
DIGITS = ROOT / "examples" / "digits"


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Typist:
    """What is typed runs in `here`; `aotc` and `python` are those of `binaries`, or the tests'."""

    folder: Path
    binaries: Path | None = None
    columns: int = 120
    toolchain: str = str(TOOLCHAIN)

    def __post_init__(self) -> None:
        self.here = self.folder / "here"
        for place in (self.here, self.folder / "home"):
            place.mkdir(parents=True, exist_ok=True)
        self.path = [str(self.binaries)]
        if self.binaries is None:
            programs = self.folder / "programs"
            programs.mkdir()
            write_program(programs)
            self.path = [str(programs), str(Path(sys.executable).parent)]

    def environment(self) -> dict[str, str]:
        """Of the machine only the folders of its programs."""
        return {
            "HOME": str(self.folder / "home"),
            "PATH": os.pathsep.join((*self.path, os.environ["PATH"])),
            "PYTHONPATH": self.toolchain,
            "COLUMNS": str(self.columns),
            "LANG": "C.UTF-8",
            **{name: text for name, text in os.environ.items() if name.startswith("AOTC_HOST_")},
        }

    def types(self, line: str, status: int = 0) -> str:
        """Run one line of a shell, which must end with `status`; what both outputs printed."""
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self.here,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == status, f"{line}\nexit status {done.returncode}\n{done.stdout}"
        assert "Traceback" not in done.stdout, done.stdout
        return done.stdout

    def text(self, name: str) -> str:
        """A file that lies here."""
        return (self.here / name).read_text("utf-8")

    def writes(self, name: str, text: str) -> None:
        """Save a file here."""
        (self.here / name).write_text(text, "utf-8")

    @contextmanager
    def starts(self, line: str, address: str, **variables: str) -> Iterator[None]:
        """Run a program beside what is typed, from when `address` answers at all."""
        log = self.folder / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                line.split(),
                cwd=self.here,
                env={**self.environment(), **variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        try:
            self.waits_for(address, lambda: process.poll() is None)
            yield
        finally:
            process.terminate()
            process.wait(SECONDS)

    @staticmethod
    def waits_for(address: str, still: Callable[[], bool] = lambda: True, said: str = "") -> str:
        """What an address answers once it answers with `said` in it."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and still():
            try:
                with urllib.request.urlopen(address, timeout=SECONDS) as answer:
                    found = answer.read().decode()
            except urllib.error.HTTPError as error:
                found = error.read().decode()
            except (urllib.error.URLError, ConnectionError):
                found = None
            if found is not None and said in found:
                return found
            time.sleep(0.1)
        raise AssertionError(f"{address} never answered {said!r}")
