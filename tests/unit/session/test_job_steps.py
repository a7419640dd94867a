"""How far a job is, told through its folder: by a real worker, and by one that tells nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from repository import SUPPORT, TOOLCHAIN

from aotc.base.progress import Count
from aotc.session.worker import steps_of, tell_steps
from aotc.session.worker_pool import Workers
from aotc.spec.profile import WorkerLimits


def test_a_worker_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(SUPPORT / "commands"), str(TOOLCHAIN))))
    poll = steps_of(tmp_path / "job", "fixtures")
    assert poll() is None
    with Workers(WorkerLimits()) as workers:
        workers.run("forked_jobs:tell", 12, folder=tmp_path / "job")
    assert poll() == Count(11, 12, "fixtures")


@pytest.mark.parametrize("text", ["", "1", "          ", "x" * 20])
def test_what_is_half_written_tells_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "steps").write_text(text)
    assert steps_of(tmp_path, "fixtures")() is None


def test_a_count_that_cannot_be_kept_fails_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "steps").mkdir()
    monkeypatch.chdir(tmp_path)
    tell_steps(1, 2)
    assert steps_of(tmp_path, "fixtures")() is None
