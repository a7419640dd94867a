"""The process that is timed calls for one connection."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from aotc.fleet.upgrade import _Caller, _Timed
from aotc.fleet.upgrade_jobs import TURNS
from aotc.tools.model_sandbox import Sandbox


class RunsTwice:
    """As a sandbox does where the process that starts jobs ended: the job is run once more."""

    def __init__(self) -> None:
        self.answered = threading.Event()

    def run(self, *_: object, folder: Path, **__: object) -> None:
        for _attempt in range(2):
            if _attempt:
                # Until then it may be in the line of those that are not accepted any more.
                self.answered.wait(20.0)
            with socket.socket(socket.AF_UNIX) as turns:
                turns.settimeout(20.0)
                turns.connect(str(folder / TURNS))
                turns.sendall(b"0.5\n")
                if _attempt:
                    turns.recv(1)


def test_a_job_that_is_run_again_does_not_wait_for_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    timed = _Timed(folder=Path("turns"), name="m", inputs={}, staged=())
    twice = RunsTwice()
    sandbox = cast("Sandbox", cast("Any", twice))
    with ThreadPoolExecutor(1) as pool, _Caller(sandbox, timed, {}, Path("turns"), pool) as caller:
        assert caller.pilot() == 0.5
        twice.answered.set()
        with pytest.raises(ConnectionRefusedError):
            caller.call(1)
