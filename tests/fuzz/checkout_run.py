"""Many checkouts, one after another: in one process, or with a process for each command.

The process that tries them is watched by another, which ends what hangs, tells the case, and goes
on with the next one.  A case follows from the run's seed and its number alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import checkouts
from fuzz_target import IN_MEMORY

CHILD = Path(__file__)
# A command that takes so long hangs.
SECONDS, BUILD_SECONDS = 40.0, 60.0
# None needs so much of address space, of which ONNX Runtime takes some.
ADDRESSES = 12 << 30
# Of three commands, this one starts processes, and takes a hundred times as long.
WEIGHED = (*("inspect", "verify") * 12, "check-models")


@dataclass
class Tried:
    """How many were tried, how many ended with a yes, and what broke a promise."""

    tries: int = 0
    accepted: int = 0
    seconds: float = 0.0
    broken: list[tuple[int, str]] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.tries} checkouts, {self.accepted} with a yes, {len(self.broken)} faults, "
            f"{self.seconds:.0f} s"
        )


def case(seed: int, number: int, commands: Sequence[str]) -> Any:
    """The case of a run with this number."""
    return checkouts.made(random.Random(f"{seed}/{number}"), commands)


def run(
    commands: Sequence[str], tries: int, seconds: float, *, seed: int, keep: Path | None = None
) -> Tried:
    """Try so many checkouts, or for so long; cases that broke a promise are written to `keep`."""
    found = Tried()
    began = time.monotonic()
    # The process itself ends a build.
    limit = 2 * BUILD_SECONDS if "build" in commands else SECONDS
    number = 0
    while number < tries and time.monotonic() - began < seconds:
        with (
            tempfile.TemporaryDirectory(
                prefix="aotc-fuzz-", dir=IN_MEMORY, ignore_cleanup_errors=True
            ) as place,
            subprocess.Popen(
                [sys.executable, CHILD, str(seed), str(number), str(tries), place, *commands],
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            ) as child,
        ):
            assert child.stdout is not None
            current = number
            while ready(child.stdout, limit):
                line = child.stdout.readline()
                if not line:
                    child.wait()
                    break
                told = json.loads(line)
                current = told["number"]
                if "status" not in told:
                    continue
                found.tries += 1
                found.accepted += told["status"] == "yes"
                if told["status"] == "broken":
                    _keep(found, seed, current, told["why"], commands, keep)
                if time.monotonic() - began > seconds:
                    break
            else:
                _keep(found, seed, current, "it hangs", commands, keep)
            over = time.monotonic() - began > seconds
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            status = child.wait()
            if not over and status not in (0, -signal.SIGKILL):
                _keep(found, seed, current, f"the process ended: {status}", commands, keep)
            number = tries if status == 0 else current + 1
    found.seconds = time.monotonic() - began
    return found


def ready(file: Any, seconds: float) -> bool:
    """Whether something can be read within so many seconds."""
    return bool(select.select([file], [], [], seconds)[0])


def _keep(
    found: Tried, seed: int, number: int, why: str, commands: Sequence[str], keep: Path | None
) -> None:
    found.broken.append((number, why))
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        path = keep / f"checkout-{seed}-{number}.json"
        path.write_text(json.dumps(case(seed, number, commands)))
        print(f"{path}: {why}\n", file=sys.stderr, flush=True)


def _try_all(seed: int, begin: int, tries: int, place: Path, commands: Sequence[str]) -> None:
    ground = _ground(place, begin)
    if ground.watch is None:
        print("what is read outside is not seen on this system", file=sys.stderr)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    attempt = _in_a_fork if "build" in commands else checkouts.tried
    for number in range(begin, tries):
        _tell(number=number)
        try:
            yes = attempt(ground, case(seed, number, commands))
        except checkouts.Broken as error:
            _tell(number=number, status="broken", why=str(error))
            # What it did would be found again and again.
            ground = _ground(place, number + 1)
        else:
            _tell(number=number, status="yes" if yes else "no")


def _ground(place: Path, number: int) -> checkouts.Ground:
    own = place / str(number)
    own.mkdir(exist_ok=True)
    return checkouts.Ground(own)


def _tell(**told: Any) -> None:
    os.write(_TOLD, (json.dumps(told) + "\n").encode())


def _in_a_fork(ground: checkouts.Ground, given: Any) -> bool:
    """As `checkouts.tried`, with the command in a process of its own."""
    words = ground.lay(given)
    if words is None:
        return False
    ground.forget()
    answer = ground.place / "said"
    child = os.fork()
    if not child:
        os.setsid()
        status, said = checkouts.called(ground, words)
        answer.write_text(json.dumps([status, said]))
        os._exit(0)
    until = time.monotonic() + BUILD_SECONDS
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise checkouts.Broken(f"{words}: it hangs")
        time.sleep(0.01)
    if not answer.exists():
        raise checkouts.Broken(f"{words}: the process died")
    status, said = json.loads(answer.read_text())
    answer.unlink()
    ground.judge(words, status, said)
    return bool(status == 0)


_TOLD = 1

if __name__ == "__main__":
    _TOLD = os.dup(1)
    os.dup2(2, 1)
    _seed, _begin, _tries = map(int, sys.argv[1:4])
    _try_all(_seed, _begin, _tries, Path(sys.argv[4]), sys.argv[5:])
