"""Jobs in forked processes: their results, and every way they can end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from repository import SUPPORT

from aotc.base.errors import AotcError
from aotc.session.worker_pool import Workers
from aotc.spec.profile import WorkerLimits

JOBS = "forked_jobs"


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        part for part in (str(SUPPORT / "commands"), path) if part
    )
    try:
        with Workers(WorkerLimits(seconds=600.0, memory_bytes=2 << 30)) as made:
            yield made
    finally:
        os.environ["PYTHONPATH"] = path


def run(workers: Workers, name: str, folder: Path, request: Any = None) -> Any:
    return workers.run(f"{JOBS}:{name}", request, folder=folder / name, where="here").value


def test_a_job_answers(workers: Workers, tmp_path: Path) -> None:
    assert run(workers, "double", tmp_path, 21) == 42


def test_what_a_job_came_to_is_asked_for_once(workers: Workers, tmp_path: Path) -> None:
    folder = tmp_path / "who"
    first = workers.run_once(f"{JOBS}:who", None, folder=folder).value
    assert workers.run_once(f"{JOBS}:who", None, folder=folder).value == first
    assert workers.run(f"{JOBS}:who", None, folder=folder).value != first


def test_jobs_run_side_by_side_in_processes_of_their_own(workers: Workers, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(workers.run, f"{JOBS}:who", None, folder=tmp_path / str(i))
            for i in range(8)
        ]
        pids = {job.result().value for job in jobs}
    assert len(pids) == 8
    assert os.getpid() not in pids


@pytest.mark.parametrize(
    ("name", "code", "what"),
    [
        ("crash", "AOTC-I013", "crash ended by SIGABRT"),
        ("leave", "AOTC-I013", "leave ended by exit status 3"),
        (
            "reap",
            "AOTC-I015",
            "reap ended by SIGKILL, most likely because the machine ran out of memory",
        ),
        ("quit_like_libjpeg", "AOTC-I013", "quit_like_libjpeg ended by exit status 1"),
        ("quit_like_python", "AOTC-R999", "quit_like_python ended by exit status 1"),
        ("unwritable", "AOTC-I043", "unwritable could not write its result"),
        ("refused", "AOTC-I043", "[Errno 24] Too many open files: '/dev/null'"),
        ("ring", "AOTC-I014", "ring ended by its alarm (one run took too much CPU time)"),
        ("swell", "AOTC-I015", "swell needed more than 2147483648 bytes"),
        ("fill", "AOTC-I018", "[Errno 28] No space left on device"),
        ("refuse", "AOTC-S001", "no size"),
    ],
)
def test_every_end_is_a_code(
    workers: Workers, tmp_path: Path, name: str, code: str, what: str
) -> None:
    with pytest.raises(AotcError) as caught:
        run(workers, name, tmp_path)
    assert (caught.value.code, caught.value.what) == (code, what)
    assert caught.value.where == "here"


def test_who_waits_uses_no_cpu_time(workers: Workers, tmp_path: Path) -> None:
    """Limits of runs and of the search are of what a process computes, not of the clock."""
    assert run(workers, "wait", tmp_path) is None
    assert run(workers, "late", tmp_path) == [False, True]


def test_the_last_lines_of_the_log_are_told(workers: Workers, tmp_path: Path) -> None:
    with pytest.raises(AotcError) as caught:
        run(workers, "crash", tmp_path)
    assert "about to die" in caught.value.found


def test_a_result_that_is_not_json_is_our_bug(workers: Workers, tmp_path: Path) -> None:
    with pytest.raises(AotcError) as caught:
        run(workers, "unspeakable", tmp_path)
    assert caught.value.code == "AOTC-R999"
    assert caught.value.what == "TypeError: Object of type bytes is not JSON serializable"


def test_what_the_worker_said_last_is_told_of_a_bug(workers: Workers, tmp_path: Path) -> None:
    with pytest.raises(AotcError) as caught:
        run(workers, "quit_like_python", tmp_path)
    assert caught.value.found == "Traceback | TypeError: of the worker's own"
    assert caught.value.exit_status == 70


def test_a_bug_in_a_job_is_ours(workers: Workers, tmp_path: Path) -> None:
    with pytest.raises(AotcError) as caught:
        run(workers, "bug", tmp_path)
    assert caught.value.code == "AOTC-R999"
    assert caught.value.what == "ZeroDivisionError: division by zero"


def test_a_server_that_cannot_start_is_told_apart_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Workers(WorkerLimits()) as workers, pytest.raises(AotcError) as caught:
        workers.run(f"{JOBS}:hang", None, folder=tmp_path / "job")
    assert (caught.value.code, caught.value.what) == (
        "AOTC-R999",
        "the process that starts jobs ended with exit status 1",
    )


@pytest.mark.parametrize(
    ("job", "request_", "place"), [("hang", None, "."), ("jobs_below", ["hang"], "hang")]
)
def test_a_job_that_does_not_end_is_ended_with_its_children(
    tmp_path: Path, job: str, request_: Any, place: str
) -> None:
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = str(SUPPORT / "commands")
    told = tmp_path / "job" / place / "child"
    try:
        # The limit holds from the start; on a busy machine the job may not have come so far.
        for seconds in (1, 8, 64):
            with (
                Workers(WorkerLimits(seconds=seconds)) as short,
                pytest.raises(AotcError) as caught,
            ):
                short.run(f"{JOBS}:{job}", request_, folder=tmp_path / "job")
            if told.exists():
                break
    finally:
        os.environ["PYTHONPATH"] = path
    what = f"{job} ran longer than {seconds} s"
    assert (caught.value.code, caught.value.what) == ("AOTC-I014", what)
    child = int(told.read_text())
    until = time.monotonic() + 300
    while Path(f"/proc/{child}").exists() and "Z" not in _state(child):
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            pytest.fail("the job's child outlived it")
        time.sleep(0.05)


def test_a_job_has_jobs_of_its_own(workers: Workers, tmp_path: Path) -> None:
    names = ["double", "crash", "refuse", "bug", "double"]
    found = run(workers, "jobs_below", tmp_path, names)
    assert found == [42, "AOTC-I013", "AOTC-S001", "AOTC-R999", 42]


def test_a_job_leaves_while_its_jobs_run(workers: Workers, tmp_path: Path) -> None:
    assert run(workers, "left_below", tmp_path) == "left"


def test_a_job_leaves_before_its_server_runs(workers: Workers, tmp_path: Path) -> None:
    assert run(workers, "left_at_once", tmp_path) == "left"


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def test_a_job_sees_no_option_that_onnxruntime_takes_from_models(
    workers: Workers, tmp_path: Path
) -> None:
    assert run(workers, "environment", tmp_path)["ORT_LOAD_CONFIG_FROM_MODEL"] is None
    assert run(workers, "environment", tmp_path)["PYTHONHASHSEED"] == "0"


def test_leaving_while_jobs_start_never_waits_for_them(tmp_path: Path) -> None:
    for turn in range(12):
        started = time.monotonic()
        with Workers(WorkerLimits(seconds=600.0)) as short:
            jobs = [
                short.submit(short.run, f"{JOBS}:hang", None, folder=tmp_path / f"{turn}-{index}")
                for index in range(4)
            ]
            # From before the server listens until after its forks run.
            time.sleep(turn * 0.04)
        assert all(job.done() for job in jobs)
        assert time.monotonic() - started < 300
