"""The process that starts builds may die with one model; the others are still built."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from repository import SUPPORT

from aotc.base.errors import AotcError
from aotc.spec.profile import WorkerLimits
from aotc.tools.model_sandbox import Sandbox

JOBS = "forked_jobs"


@pytest.fixture
def found_by_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = (str(SUPPORT / "commands"), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(part for part in parts if part))


@pytest.mark.usefixtures("found_by_jobs")
def test_a_server_that_is_gone_is_started_again(tmp_path: Path) -> None:
    with Sandbox(WorkerLimits()) as sandbox:
        first = sandbox.run(f"{JOBS}:server", None, folder=tmp_path / "1", where="").value
        os.kill(first, signal.SIGKILL)
        second = sandbox.run(f"{JOBS}:server", None, folder=tmp_path / "2", where="").value
        assert second != first


@pytest.mark.usefixtures("found_by_jobs")
def test_a_job_that_takes_the_server_down_twice_is_refused(tmp_path: Path) -> None:
    with Sandbox(WorkerLimits()) as sandbox:
        with pytest.raises(AotcError) as caught:
            sandbox.run(f"{JOBS}:fell", None, folder=tmp_path / "1", where="")
        assert caught.value.code == "AOTC-I015"
        assert sandbox.run(f"{JOBS}:double", 4, folder=tmp_path / "2", where="").value == 8


@pytest.mark.usefixtures("found_by_jobs")
def test_one_that_is_closed_starts_nothing_again(tmp_path: Path) -> None:
    with Sandbox(WorkerLimits()) as sandbox:
        sandbox.run(f"{JOBS}:double", 4, folder=tmp_path / "1", where="")
    with pytest.raises(AotcError):
        sandbox.run(f"{JOBS}:double", 4, folder=tmp_path / "2", where="")
