"""The executor `local`: room by cores and memory, jobs that fail, and what comes back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import fleet_jobs
import pytest
from command import TOOLCHAIN, wait_until
from process_tree import alive
from refusals import refusal_code

from aotc.fleet.executors import EXECUTORS
from aotc.fleet.executors.base import Job, JobOutcome
from aotc.fleet.executors.local import LocalExecutor
from aotc.spec.fleet import Needs

_CORES = len(os.sched_getaffinity(0))
two_cores = pytest.mark.skipif(_CORES < 2, reason="one core runs one job at a time")


@pytest.fixture(scope="module")
def environment() -> Iterator[None]:
    """Workers find the jobs of these tests."""
    support = str(Path(fleet_jobs.__file__).parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(TOOLCHAIN), support)))
        yield


@pytest.fixture(scope="module")
def executor(environment: None) -> Iterator[LocalExecutor]:
    with LocalExecutor() as started:
        yield started


def job(name: str, function: str, needs: Needs | None = None, **request: Any) -> Job:
    """A job of these tests."""
    return Job(
        name=name,
        function=f"fleet_jobs:{function}",
        request=request,
        needs=needs or Needs(),
        seconds=60.0,
    )


def overlapping(outcomes: list[JobOutcome]) -> int:
    """The most jobs that ran at one time."""
    spans = [(each.value["began"], each.value["ended"]) for each in outcomes]
    return max(sum(a <= began < b for a, b in spans) for began, _ in spans)


@two_cores
def test_jobs_run_at_once_each_on_cores_of_its_own(executor: LocalExecutor, tmp_path: Path) -> None:
    # Each waits for the other, which comes only if both run.
    jobs = [job(str(n), "held", folder=str(tmp_path), seconds=60, until=2) for n in range(2)]
    outcomes = list(executor.run(jobs))
    assert overlapping(outcomes) == 2
    one, other = (set(each.value["cores"]) for each in outcomes)
    assert one.isdisjoint(other)
    assert len(one) == 1


def test_a_job_that_asks_for_all_cores_has_them_alone(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    every = Needs(cpus=float(_CORES))
    jobs = [
        job(str(n), "held", needs, folder=str(tmp_path), seconds=0.1)
        for n, needs in enumerate([every, Needs(), every])
    ]
    outcomes = list(executor.run(jobs))
    assert overlapping(outcomes) == 1
    assert len(outcomes[0].value["cores"]) == _CORES


def test_memory_is_not_promised_twice(executor: LocalExecutor, tmp_path: Path) -> None:
    (worker,) = executor.workers()
    assert worker.serves.memory_bytes is not None
    half = Needs(memory_bytes=int(worker.serves.memory_bytes * 0.5))
    jobs = [job(str(n), "held", half, folder=str(tmp_path), seconds=0.1) for n in range(2)]
    assert overlapping(list(executor.run(jobs))) == 1


def test_what_needs_more_memory_than_there_is_runs_alone(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    (worker,) = executor.workers()
    assert worker.serves.memory_bytes is not None
    # As estimated: it may do with less.
    much = Needs(memory_bytes=worker.serves.memory_bytes * 2)
    jobs = [job(str(n), "held", much, folder=str(tmp_path), seconds=0.1) for n in range(2)]
    assert overlapping(list(executor.run(jobs))) == 1


def test_memory_and_time_are_measured(executor: LocalExecutor) -> None:
    (outcome,) = executor.run([job("hungry", "hungry", bytes=300 << 20)])
    assert outcome.peak_memory_bytes is not None
    assert outcome.peak_memory_bytes > 300 << 20
    assert outcome.seconds > 0
    assert outcome.worker == executor.workers()[0]


def test_files_come_and_what_is_left_comes_back(executor: LocalExecutor, tmp_path: Path) -> None:
    path = tmp_path / "given.txt"
    path.write_text("hello")
    asked = Job(
        name="leave",
        function="fleet_jobs:leave",
        request={"file": "{file:data/given.txt}", "plain": ["{file:other}", 1, None]},
        files={"data/given.txt": path},
    )
    with closing(executor.run([asked])) as outcomes:
        outcome = next(outcomes)
        assert outcome.folder is not None
        assert (outcome.folder / "said.txt").read_text() == "hello"
        assert outcome.value == {"name": "given.txt", "beside": ["{file:other}", 1, None]}
        assert list(outcomes) == []
        assert not outcome.folder.exists()


def test_a_job_that_fails_stops_no_other(executor: LocalExecutor, tmp_path: Path) -> None:
    late = Job(
        name="late",
        function="fleet_jobs:held",
        request={"folder": str(tmp_path), "seconds": 600},
        seconds=0.2,
    )
    path = tmp_path / "given.txt"
    path.write_text("")
    jobs = [
        job("crash", "abort"),
        late,
        job("unknown", "no_such_function"),
        job("good", "leave", file=str(path), plain=1),
    ]
    lines: list[tuple[str, str]] = []
    ended = {each.job.name: each for each in executor.run(jobs, lambda *line: lines.append(line))}
    codes = {name: each.error.code if each.error else "" for name, each in ended.items()}
    assert codes == {
        "crash": "AOTC-I013",
        "late": "AOTC-I014",
        "unknown": "AOTC-R999",
        "good": "",
    }
    assert ("crash", "about to crash") in lines


def test_every_worker_is_asked(executor: LocalExecutor, tmp_path: Path) -> None:
    answers = executor.ask(job("ask", "held", folder=str(tmp_path), seconds=0))
    (worker,) = executor.workers()
    assert list(answers) == [worker.name]
    assert answers[worker.name].error is None


@pytest.mark.parametrize(
    ("needs", "what"),
    [
        (Needs(cpus=4000.0), "cpus"),
        (Needs(memory_bytes=1 << 60), "memory"),
        (Needs(num_gpus=1000.0), "num_gpus"),
        (Needs(resources={"xeon": 1.0}), "xeon"),
        (Needs(accelerator_type="TPU-9"), "accelerator_type"),
    ],
)
def test_what_is_not_served_is_told_by_name(
    executor: LocalExecutor, needs: Needs, what: str
) -> None:
    refused = executor.refusal(needs)
    assert refused is not None
    assert refused.code == "AOTC-I164"
    assert refused.what == f"the worker has too little of what the cell needs: {what}"
    assert executor.refusal(Needs()) is None


def test_jobs_that_run_end_with_the_iterator(environment: None, tmp_path: Path) -> None:
    path = tmp_path / "given.txt"
    path.write_text("")
    with LocalExecutor(jobs=2) as executor:
        jobs = [
            job("long", "held", folder=str(tmp_path / "pids"), seconds=600),
            job("short", "leave", file=str(path), plain=1),
        ]
        (tmp_path / "pids").mkdir()
        if _CORES < 2:
            jobs.reverse()
        with closing(executor.run(jobs)) as outcomes:
            assert next(outcomes).job.name == "short"
            wait_until(lambda: any((tmp_path / "pids").iterdir()) or _CORES < 2)
        pids = [int(each.name) for each in (tmp_path / "pids").iterdir()]
        wait_until(lambda: not alive(set(pids)))


def test_the_address_of_this_machine_is_none() -> None:
    assert refusal_code(LocalExecutor, "here") == "AOTC-I027"
    assert EXECUTORS.load("local") is LocalExecutor
