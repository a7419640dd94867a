"""A command that is killed at the n-th of its steps on files, for n = 1, 2, 3 … until it ends.

A step is what changes files: a folder that is made, a name that is given or taken, a file that is
opened to be written, and what is written.  Python tells of the first three before they happen
(audit events) and, by a profile of calls into C, of the others after they happened: so between any
two changes the command is killed once.  The command runs in a fork of this process, which has
imported what it needs; processes that it starts are not watched, and end with it.
"""

from __future__ import annotations

import io
import mmap
import os
import shutil
import signal
import stat
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

TOOLCHAIN = Path(__file__).resolve().parents[3] / "toolchain"
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_EVENTS = frozenset(
    {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod"}
    | {"os.chown", "os.truncate", "os.utime", "os.setxattr"}
)
# Of files, and of the system.
_METHODS = frozenset({"write", "writelines", "flush", "truncate"})
_FILES = (io.FileIO, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)
_CALLS = frozenset(
    {"write", "pwrite", "writev", "pwritev", "sendfile", "copy_file_range", "ftruncate"}
    | {"fsync", "fchmod", "fchown", "ioctl"}
)
KILLED = -signal.SIGKILL


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, how many steps it took, and what it said."""

    status: int
    steps: int
    said: str

    @property
    def killed(self) -> bool:
        """Whether it was killed before its end."""
        return self.status == KILLED


@dataclass(frozen=True, slots=True)
class Home:
    """A working folder with everything that a command knows of its user within it."""

    folder: Path
    more: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """As the command sees it."""
        home = self.folder / "home"
        return {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "XDG_STATE_HOME": str(home / "state"),
            "AOTC_CACHE": str(home / "cache" / "build"),
            "AOTC_STORE": str(self.folder / "store"),
            "TMPDIR": str(self.folder / "tmp"),
            "PYTHONPATH": str(TOOLCHAIN),
            **self.more,
        }

    def run(
        self, *words: str, kill_at: int | None = 0, first: Callable[[], None] | None = None
    ) -> Ended:
        """Run a command, killed before its `kill_at`-th step; `first` changes its process.

        None: its steps are not counted, which takes time.
        """
        for each in ("tmp", "home"):
            (self.folder / each).mkdir(parents=True, exist_ok=True)
        said = self.folder.with_name(f"{self.folder.name}.said")
        with mmap.mmap(-1, 8) as counter:
            pid = os.fork()
            if pid == 0:
                _be_the_command(self, words, kill_at, counter, said, first)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            (steps,) = struct.unpack("q", counter[:8])
        return Ended(status, steps, said.read_text("utf-8", "replace"))

    def leftovers(self, allowed: Sequence[str] = ()) -> list[str]:
        """Half-written things: hidden names anywhere, and what is in the temporary folder."""
        found = {*self.folder.rglob(".*"), *(self.folder / "tmp").iterdir()}
        names = {str(each.relative_to(self.folder)) for each in found}
        return sorted(name for name in names if Path(name).name not in allowed)


def sweep(
    template: Path,
    folder: Path,
    words: Sequence[str],
    *,
    every: bool,
    samples: int = 8,
    first: Callable[[], None] | None = None,
    fresh: Callable[[Path, Path], Home] | None = None,
) -> Iterator[tuple[int, Home]]:
    """Kill a command at each of its steps, in a copy of `template`; the copies, for a look.

    `every`: at all of them, until it ends by itself; else at some, the first and the last ones.
    `fresh` makes the copies, in place of the one before.
    """
    fresh = fresh or copied
    home = fresh(template, folder)
    whole = home.run(*words, first=first)
    assert whole.status == 0, whole
    assert whole.steps > 0
    # Which thread is quicker may change the number by some.
    chosen = range(1, whole.steps * 2 + 100) if every else _some(whole.steps, samples)
    for number in chosen:
        home = fresh(template, folder)
        ended = home.run(*words, kill_at=number, first=first)
        assert "Traceback" not in ended.said, (number, ended)
        if not ended.killed:
            assert ended.status == 0, (number, ended)
            if every:
                return
            continue
        yield number, home
    assert not every, "it never ended by itself"


def copied(template: Path, folder: Path) -> Home:
    """A copy of the template, in place of the one before."""
    if folder.exists():
        for each in (folder, *folder.rglob("*")):
            if each.is_dir() and not each.is_symlink():
                each.chmod(0o755)
        shutil.rmtree(folder)
    shutil.copytree(template, folder, symlinks=True)
    return Home(folder)


def _some(steps: int, samples: int) -> list[int]:
    """Numbers from 1 to `steps`: evenly, and more of the last, where names are taken."""
    spread = {1 + round(index * (steps - 1) / max(1, samples - 1)) for index in range(samples)}
    return sorted({each for each in (*spread, *range(steps - 2, steps + 1)) if each > 0})


def _be_the_command(
    home: Home,
    words: Sequence[str],
    kill_at: int | None,
    counter: mmap.mmap,
    said: Path,
    first: Callable[[], None] | None,
) -> None:
    """What the fork does; it never returns."""
    status = 70
    try:
        # Of its own, so that what it starts can be told from what the tests start.
        os.setsid()
        os.environ.clear()
        os.environ.update(home.environment())
        os.chdir(home.folder)
        tempfile.tempdir = None
        descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for number in (1, 2):
            os.dup2(descriptor, number)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        from aotc.cli.main import main

        # What Python keeps of modules is none of the command's files.
        sys.dont_write_bytecode = True
        if first is not None:
            first()
        if kill_at is not None:
            watch(kill_at, counter)
        status = main(list(words))
        sys.setprofile(None)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def watch(kill_at: int, counter: Any) -> None:
    """Count this process's steps on files in `counter`, and kill it at the `kill_at`-th."""
    lock = threading.Lock()
    opened = threading.local()
    steps = 0

    def step() -> None:
        nonlocal steps
        with lock:
            steps += 1
            counter[:8] = struct.pack("q", steps)
            if steps == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            flags = arguments[2]
            if isinstance(flags, int) and flags & _WRITES:
                opened.here = True
                step()
        elif event in _EVENTS:
            step()

    def called(frame: FrameType, event: str, function: Any) -> None:
        if event != "c_return":
            return
        name, owner = function.__name__, function.__self__
        if name == "open":
            if getattr(opened, "here", False):
                opened.here = False
                step()
        elif name in _METHODS and isinstance(owner, _FILES):
            if _is_plain(owner):
                step()
        elif name in _CALLS and isinstance(owner, ModuleType):
            step()

    sys.addaudithook(heard)
    threading.setprofile(called)
    sys.setprofile(called)


def _is_plain(file: io.IOBase) -> bool:
    """Whether it is a file on a disk: no pipe, no terminal, and open."""
    try:
        number = file.fileno()
        return number > 2 and stat.S_ISREG(os.fstat(number).st_mode)
    except (OSError, ValueError):
        return False
