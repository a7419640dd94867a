"""Root folders in which commands run as another user that can write little: hosts and pods.

Changing the root takes this machine's administrator; a reason says what is missing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from repository import ROOT
from running_server import Server, free_port

_UNSHARED = ("unshare", "--mount", "--propagation", "private")


def why_not() -> str:
    """Why nothing can be confined here; empty if it can."""
    if os.geteuid() != 0:
        return "another root and user take the administrator"
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    tried = subprocess.run([*_UNSHARED, "mount", "--bind", "/proc", "/mnt"], capture_output=True)
    return "" if tried.returncode == 0 else "nothing may be mounted here"


@dataclass
class Host:
    """A root folder with this Python and this checkout; all of it is read-only but `writable`."""

    root: Path
    user: int
    directory: str
    writable: tuple[str, ...] = ()
    umask: int = 0o022
    no_writable_code: bool = False
    system_calls: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    read_only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.environment["PATH"] = "/usr/bin:/bin"
        places = [place for place in ("/usr", "/lib", "/lib64", "/bin") if Path(place).is_dir()]
        own = {str(Path(each).resolve()) for each in (sys.base_prefix, sys.prefix, str(ROOT))}
        # A folder before those within it, which it would hide.
        places += sorted(own)
        self.read_only += tuple(places)
        made = ("/dev", "/proc", "/tmp", "/etc/aotc", self.directory)
        for place in (*made, *self.read_only, *self.writable):
            self.inside(place).mkdir(parents=True, exist_ok=True)
        self.inside("/tmp").chmod(0o1777)

    def inside(self, place: str) -> Path:
        """The path here of what is called so there."""
        return self.root / place.lstrip("/")

    def add_programs(self, folder: str) -> None:
        """Put `aotc` and `uvicorn` into a folder there."""
        self.inside(folder).mkdir(parents=True, exist_ok=True)
        python = Path(sys.prefix).resolve() / "bin" / "python"
        for name, module in (("aotc", "aotc.cli.main"), ("uvicorn", "uvicorn")):
            program = self.inside(folder) / name
            program.write_text(
                f'#!/bin/sh\nPYTHONPATH={ROOT}/toolchain exec {python} -m {module} "$@"\n'
            )
            program.chmod(0o755)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(self._command(words), capture_output=True, text=True, check=False)

    @contextmanager
    def serving(self, log: Path, *words: str) -> Iterator[Server]:
        """A server, whose port is `{port}` in its words."""
        port = free_port()
        with log.open("wb") as output:
            process = subprocess.Popen(
                self._command([word.replace("{port}", str(port)) for word in words]),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            yield Server(process, port, log)
        finally:
            process.terminate()
            process.wait(60)

    def _command(self, words: Any) -> list[str]:
        setting = {**asdict(self), "root": str(self.root)}
        confined = Path(__file__).with_name("confined.py")
        return [*_UNSHARED, sys.executable, str(confined), json.dumps(setting), *words]
