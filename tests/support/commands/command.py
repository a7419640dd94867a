"""The real command in a separate process and home, and checks that apply to every call."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ready_command import ReadyCommand, may_be_ready
from repository import TOOLCHAIN

# This machine as less than it is holds for what the tests start as well.
_OF_THE_HOST = ("AOTC_HOST_ISA", "AOTC_HOST_WITHOUT")
SCRIPT = Path(sys.executable).with_name("aotc")
# Generous: a machine may be busy, and only what is broken takes so long.
SECONDS = 600.0
Running = subprocess.Popen[str] | ReadyCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call ended, and its output."""

    status: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output."""
        document = json.loads(self.stdout)
        assert isinstance(document, dict)
        assert document["schema"].startswith("aotc."), document
        return document

    @property
    def codes(self) -> list[str]:
        """Codes of all refusals: of an error, or of the gate's report."""
        document = self.document
        return [item["code"] for item in document.get("errors") or document.get("refusals") or ()]

    @property
    def first(self) -> dict[str, Any]:
        """The first refusal, as data."""
        document = self.document
        refusals = document.get("errors") or document["refusals"]
        assert isinstance(refusals[0], dict)
        return refusals[0]

    def refused(self, code: str, status: int) -> dict[str, Any]:
        """The first refusal, which must be `code` with exit status `status`."""
        assert (self.codes[0], self.status) == (code, status), self
        return self.first


@dataclass(frozen=True, slots=True)
class Command:
    """`aotc` with HOME, configuration, cache, store, temporary and working folder in `folder`.

    `anew`: started as a user starts it, and not forked from a process that has imported it all.
    """

    folder: Path
    extra: Mapping[str, str] = field(default_factory=dict)
    anew: bool = False

    def environment(self) -> dict[str, str]:
        """The command's environment; from the user who runs the tests only PATH."""
        home, temporary = self.folder / "home", self.folder / "tmp"
        for item in (home, temporary):
            item.mkdir(parents=True, exist_ok=True)
        return {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "AOTC_STORE": str(self.store),
            "TMPDIR": str(temporary),
            "PYTHONPATH": str(TOOLCHAIN),
            **{name: os.environ[name] for name in _OF_THE_HOST if name in os.environ},
            **self.extra,
        }

    @property
    def store(self) -> Path:
        """The command's store."""
        return self.folder / "store"

    def start(self, *words: str | Path, prefix: Sequence[str] = ()) -> Running:
        """Start the command as the leader of a process group."""
        typed = [*prefix, str(SCRIPT), *(str(word) for word in words)]
        environment = self.environment()
        if not prefix and not self.anew and may_be_ready(environment):
            return ReadyCommand(typed, self.folder, environment)
        return subprocess.Popen(
            typed,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def plain(self, *words: str | Path, prefix: Sequence[str] = ()) -> Outcome:
        """Run the command as typed."""
        return finish(self.start(*words, prefix=prefix))

    def __call__(self, *words: str | Path, prefix: Sequence[str] = ()) -> Outcome:
        """Run the command with `--json`: standard output must be one document, nothing else."""
        outcome = self.plain(*words, "--json", prefix=prefix)
        assert outcome.document
        return outcome

    def leftovers(self) -> list[str]:
        """Half-written files: hidden names anywhere, and the contents of the temporary folder."""
        found = {*self.folder.rglob(".*"), *(self.folder / "tmp").iterdir()}
        names = {str(item.relative_to(self.folder)) for item in found}
        return sorted(names)


def finish(process: Running) -> Outcome:
    """Wait for a command; its output must not have a traceback."""
    try:
        stdout, stderr = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        raise AssertionError(f"no end after {SECONDS:g} s: {stdout}\n{stderr}") from None
    assert "Traceback" not in stdout + stderr, stdout + stderr
    return Outcome(status=process.returncode, stdout=stdout, stderr=stderr)


def wait_until(true: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """The value of `true()` once it is true; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)
    return found
