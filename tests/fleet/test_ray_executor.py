"""The executor `ray` on a cluster of real nodes: a head, and nodes as processes of this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from given_jobs import end
from ray_cluster import Cluster

import aotc.fleet.executors.ray as executor_module
from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.fleet.executors.base import Job, JobOutcome
from aotc.fleet.executors.ray import RayExecutor
from aotc.host.cpu import usable_processors
from aotc.spec.fleet import Needs

try:
    # A folder of that name, such as Ray's own in /tmp, is one to `import` as well.
    version("ray")
except PackageNotFoundError:
    pytest.skip("Ray is not installed: make test-fleet", allow_module_level=True)

Lines = list[tuple[str, str]]


@pytest.fixture(scope="module")
def joined(cluster: Cluster) -> Iterator[RayExecutor]:
    with RayExecutor(cluster.address) as executor:
        yield executor


def outcomes_of(executor: RayExecutor, *jobs: Job, log: Lines | None = None) -> list[JobOutcome]:
    told = log if log is not None else []
    found = list(executor.run(jobs, lambda name, line: told.append((name, line))))
    return sorted(found, key=lambda outcome: outcome.job.name)


def a_job(
    name: str, function: str = "echo", /, needs: Needs | None = None, **request: object
) -> Job:
    return Job(
        name=name,
        function=f"given_jobs:{function}",
        request={"text": name, **request},  # type: ignore[dict-item]
        needs=needs or Needs(),
    )


def worker_of(outcome: JobOutcome) -> str:
    assert outcome.error is None
    assert outcome.worker is not None
    return outcome.worker.name


def test_nodes_describe_themselves(joined: RayExecutor) -> None:
    found = {worker.name: worker for worker in joined.workers()}
    assert set(found) == {"xeon", "epyc", "gpu"}
    assert found["xeon"].serves.resources == {"xeon": 1.0}
    assert found["xeon"].serves.cpus == 2.0
    assert found["gpu"].serves.num_gpus == 1.0
    assert found["xeon"].sources
    assert {"aotc", "python", "onnx", "onnxruntime", "numpy"} <= set(found["xeon"].versions)
    assert abs(found["xeon"].clock_offset_seconds) < 0.5


def test_what_a_job_leaves_and_says_comes_back(joined: RayExecutor) -> None:
    told: Lines = []
    seen = []
    jobs = [a_job("one"), a_job("two")]
    for outcome in joined.run(jobs, lambda name, line: told.append((name, line))):
        assert outcome.folder is not None
        seen.append(outcome.folder)
        assert outcome.value == {"text": outcome.job.name, "gpus": ""}
        assert (outcome.folder / "below" / "text").read_text() == outcome.job.name
        assert (outcome.folder / "empty").read_bytes() == b""
        assert (outcome.attempts, outcome.error) == (1, None)
        assert outcome.peak_memory_bytes is not None
        assert outcome.peak_memory_bytes > 1 << 20
    assert not any(folder.exists() for folder in seen)
    assert {("one", "says one"), ("two", "says two")} <= set(told)


def test_jobs_run_where_their_needs_are_served(joined: RayExecutor) -> None:
    needs = {
        "epyc": Needs(resources={"epyc": 1}),
        "gpu": Needs(num_gpus=1),
        "xeon": Needs(resources={"xeon": 1}),
    }
    found = outcomes_of(joined, *(a_job(name, needs=need) for name, need in needs.items()))
    assert [worker_of(outcome) for outcome in found] == ["epyc", "gpu", "xeon"]
    assert found[1].value == {"text": "gpu", "gpus": "0"}


def test_jobs_run_on_the_workers_that_they_name(joined: RayExecutor) -> None:
    jobs = [Job(name=f"{n}", function="given_jobs:echo", request={"text": ""}) for n in range(4)]
    found = outcomes_of(joined, *(Job(**_fields(job), workers=("epyc",)) for job in jobs))
    assert [worker_of(outcome) for outcome in found] == ["epyc"] * 4


def _fields(job: Job) -> dict[str, object]:
    return {"name": job.name, "function": job.function, "request": job.request}


def test_every_worker_is_asked(joined: RayExecutor) -> None:
    found = joined.ask(a_job("asked"))
    assert {name: worker_of(outcome) for name, outcome in found.items()} == {
        name: name for name in ("xeon", "epyc", "gpu")
    }


def test_what_nobody_serves_is_told_before_anything_runs(joined: RayExecutor) -> None:
    assert joined.refusal(Needs(resources={"xeon": 1})) is None
    refused = joined.refusal(Needs(cpus=64))
    assert refused is not None
    assert {error.where for error in refused.every()} == {"xeon", "epyc", "gpu"}
    assert "the cell needs: cpus" in refused.what
    (outcome,) = outcomes_of(joined, a_job("tpu", needs=Needs(resources={"tpu": 1})))
    assert outcome.error is not None
    assert outcome.error.code == "AOTC-I164"


def test_amounts_are_counted_as_ray_counts_them(
    joined: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = [each for each in joined._nodes.values() if each.worker.name == "xeon"]
    free = []

    def begun(job: Job) -> None:
        free.append(node.free["xeon"])
        if len(free) == 3:
            (tmp_path / "go").touch()

    monkeypatch.setattr(joined, "begun", begun)
    jobs = [
        a_job(f"{n}", "wait", Needs(cpus=n, resources={"xeon": n}), folder=str(tmp_path), name="")
        for n in (0.1, 0.2, 0.2)
    ]
    found = outcomes_of(joined, *jobs)
    # Not 0.7000000000000001, which may add up to less than the whole when all have ended.
    assert free == [0.9, 0.7, 0.5]
    found += outcomes_of(
        joined,
        a_job("none", needs=Needs(resources={"tpu": 0.0})),
        a_job("little", needs=Needs(cpus=0.01234, resources={"xeon": 0.00002})),
    )
    assert [outcome.error for outcome in found] == [None] * 5
    assert node.free["xeon"] == 1.0


def test_an_estimate_of_memory_refuses_and_limits_nothing(joined: RayExecutor) -> None:
    job = a_job("large", "limit")
    (outcome,) = outcomes_of(joined, Job(**_fields(job), memory_bytes=1 << 50))
    assert outcome.worker is not None
    assert outcome.value == outcome.worker.serves.memory_bytes
    (outcome,) = outcomes_of(joined, a_job("stated", "limit", Needs(memory_bytes=3 << 29)))
    assert outcome.value == 3 << 29


def test_a_jobs_own_error_ends_it(joined: RayExecutor, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    told: Lines = []
    failing = a_job("failing", "refuse", runs=str(runs))
    found = outcomes_of(joined, failing, a_job("other"), log=told)
    assert found[0].error is not None
    assert found[0].error.line() == "AOTC-N001 the gate fails [here]"
    assert (found[0].attempts, found[1].error) == (1, None)
    assert runs.read_text() == "x"


def test_a_job_is_ended_at_its_time(joined: RayExecutor, tmp_path: Path) -> None:
    job = a_job("slow", "wait", folder=str(tmp_path))
    request = {**job.request, "name": "slow"}
    late = Job(name="slow", function=job.function, request=request, seconds=0.5)
    (outcome,) = outcomes_of(joined, late)
    assert outcome.error is not None
    assert outcome.error.code == "AOTC-I014"


def test_a_file_of_many_jobs_travels_to_a_node_once(joined: RayExecutor, tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(os.urandom(2 << 20))
    before = len(joined._sent)
    jobs = [
        Job(
            name=f"{number}",
            function="given_jobs:size",
            request={"file": "{file:model/weights}"},
            files={"model/weights": file},
        )
        for number in range(4)
    ]
    found = outcomes_of(joined, *jobs)
    assert [outcome.value for outcome in found] == [2 << 20] * 4
    assert len(joined._sent) == before + 1
    # Gone from the object store, it is still where it was, in the cache of a node.
    where = worker_of(found[0])
    joined._sent.clear()
    joined._sent[joined._digests[(str(file), 2 << 20, file.stat().st_mtime_ns)]] = (
        2 << 20,
        (None,),
    )
    (outcome,) = outcomes_of(joined, Job(**{**_all(jobs[0]), "workers": (where,)}))
    assert outcome.value == 2 << 20
    joined._sent.clear()


def _all(job: Job) -> dict[str, object]:
    return {**_fields(job), "files": job.files}


def started(folder: Path, count: int) -> list[int]:
    """Process ids of jobs that wait, the first one first, when there are `count` of them."""
    while True:
        found = sorted(folder.glob("*-*"), key=lambda path: path.stat().st_mtime_ns)
        if len(found) >= count:
            return [int(path.name.rpartition("-")[2]) for path in found]
        time.sleep(0.02)


def ray_process_of(job: int) -> int:
    """The process of Ray's that runs a job in a process below it."""
    while not Path(f"/proc/{job}/cmdline").read_bytes().startswith(b"ray::"):
        job = _parent(job)
        assert job > 1
    return job


def kill_worker_of(job: int) -> None:
    os.kill(ray_process_of(job), signal.SIGKILL)


def in_background(call: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_a_lost_process_loses_one_run(joined: RayExecutor, tmp_path: Path) -> None:
    jobs = [a_job(f"{n}", "wait", folder=str(tmp_path), name=f"{n}") for n in range(3)]

    def kill() -> None:
        kill_worker_of(started(tmp_path, 3)[0])
        while len(list(tmp_path.glob("*-*"))) < 4:
            time.sleep(0.02)
        (tmp_path / "go").touch()

    thread = in_background(kill)
    told: Lines = []
    found = outcomes_of(joined, *jobs, log=told)
    thread.join()
    assert [outcome.error for outcome in found] == [None] * 3
    assert sorted(outcome.attempts for outcome in found) == [1, 1, 2]
    assert [line for _, line in told if "lost" in line] == [
        "its worker was lost: WorkerCrashedError"
    ]


def _parent(process: int) -> int:
    text = Path(f"/proc/{process}/stat").read_text()
    return int(text.rpartition(")")[2].split()[1])


def test_a_process_that_does_not_answer_is_a_lost_one(
    joined: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module, "_SILENT_SECONDS", 0.0)
    monkeypatch.setattr(executor_module, "_LOOK_SECONDS", 0.2)
    job = a_job("0", "wait", folder=str(tmp_path), name="0")
    stopped: list[int] = []

    def stop() -> None:
        stopped.append(ray_process_of(started(tmp_path, 1)[0]))
        os.kill(stopped[0], signal.SIGSTOP)
        started(tmp_path, 2)
        (tmp_path / "go").touch()

    thread = in_background(stop)
    told: Lines = []
    (outcome,) = outcomes_of(joined, Job(**_fields(job), seconds=5.0), log=told)
    thread.join()
    assert (outcome.error, outcome.attempts) == (None, 2)
    # Ray ends a process that does not end by itself.
    while Path(f"/proc/{stopped[0]}").exists():
        time.sleep(0.05)
    assert ("0", "its worker was lost: it does not answer") in told


def test_files_that_ray_lost_are_sent_again(joined: RayExecutor, tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(os.urandom(1000))
    job = a_job("0", "size", file="{file:model/weights}")
    job = Job(**_fields(job), files={"model/weights": file})
    (first,) = outcomes_of(joined, job)
    sha256 = joined._digests[(str(file), 1000, file.stat().st_mtime_ns)]
    gone = joined._ray.remote(end).options(num_cpus=0, max_retries=0).remote()
    joined._sent[sha256] = (1000, (gone,))
    (second,) = outcomes_of(joined, job)
    assert [(each.value, each.error) for each in (first, second)] == [(1000, None)] * 2
    assert (first.attempts, second.attempts) == (1, 2)


def test_an_object_store_that_is_full_fails_a_job_alone(
    joined: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"weights")

    def put(data: bytes) -> None:
        raise joined._ray.exceptions.OutOfDiskError

    monkeypatch.setattr(joined._ray, "put", put)
    job = Job(**_fields(a_job("0")), files={"model/weights": file})
    found = outcomes_of(joined, job, a_job("1"))
    assert found[0].error is not None
    assert (found[0].error.code, found[0].error.where) == ("AOTC-I018", str(file))
    assert found[1].error is None


def test_a_job_that_loses_all_its_workers_fails_alone(joined: RayExecutor, tmp_path: Path) -> None:
    victim = a_job("0", "wait", folder=str(tmp_path), name="victim")

    def kill() -> None:
        for count in range(1, executor_module.MAX_ATTEMPTS + 1):
            kill_worker_of(started(tmp_path, count)[-1])

    thread = in_background(kill)
    found = outcomes_of(joined, victim, a_job("1"))
    thread.join()
    assert found[0].error is not None
    assert found[0].error.line() == (
        "AOTC-R053 the job lost its worker 3 times [0] (found WorkerCrashedError)"
    )
    assert (found[0].attempts, found[1].error) == (3, None)


_DRIVER = """
import sys
from aotc.fleet.executors.base import Job
from aotc.fleet.executors.ray import RayExecutor

address, folder = sys.argv[1:]
with RayExecutor(address) as executor:
    jobs = [
        Job(name=f"{n}", function="given_jobs:wait", request={"folder": folder, "name": f"{n}"})
        for n in range(2)
    ]
    for outcome in executor.run(jobs):
        print(outcome.job.name, outcome.error, flush=True)
"""


def test_jobs_end_with_their_driver(cluster: Cluster, tmp_path: Path) -> None:
    """And nothing of it is in the way of the next one."""
    words = [sys.executable, "-c", _DRIVER, cluster.address, str(tmp_path)]
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {**cluster.environment, "PYTHONPATH": paths}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as driver:
        pids = started(tmp_path, 2)
        driver.kill()
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.05)
    for left in tmp_path.glob("*-*"):
        left.unlink()
    (tmp_path / "go").touch()
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert sorted(done.stdout.split()) == ["0", "1", "None", "None"], done.stderr


def test_a_lost_node_loses_its_runs_alone(
    cluster: Cluster, joined: RayExecutor, tmp_path: Path
) -> None:
    cluster.add("doomed", ['--resources={"doomed": 1}'])
    cluster.wait_for("doomed")
    joined._look()
    jobs = [a_job(f"{n}", "wait", folder=str(tmp_path), name=f"{n}") for n in range(8)]
    jobs[0] = Job(**_fields(jobs[0]), workers=("doomed",))

    def kill() -> None:
        started(tmp_path, 8)
        cluster.kill("doomed")
        # There is room for the lost ones when others have ended.
        (tmp_path / "go").touch()

    thread = in_background(kill)
    told: Lines = []
    found = outcomes_of(joined, *jobs, log=told)
    thread.join()
    # The one that no other may run has nobody left, and ran once.
    assert found[0].error is not None
    assert (found[0].error.code, found[0].attempts) == ("AOTC-R055", 1)
    assert [outcome.error for outcome in found[1:]] == [None] * 7
    assert sorted(outcome.attempts for outcome in found[1:]) == [1] * 6 + [2]
    assert "doomed" not in {worker_of(outcome) for outcome in found[1:]}
    assert ("doomed", "is lost") in told
    refused = joined.refusal(Needs(resources={"doomed": 1}))
    assert refused is not None


# -- nodes that are not as this machine


def refusal_of(executor: RayExecutor, name: str) -> str:
    (found,) = [error for error in executor._refused if error.where == name]
    return found.line()


def test_another_aotc_is_refused_by_name(
    cluster: Cluster, joined: RayExecutor, tmp_path: Path
) -> None:
    package = Path(executor_module.__file__).parents[2]
    shutil.copytree(package, tmp_path / "aotc", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "aotc" / "graph" / "model.py").open("a") as module:
        module.write("\n# Changed.\n")
    cluster.add("other", environment={"PYTHONPATH": str(tmp_path)})
    cluster.wait_for("other")
    joined._look()
    assert refusal_of(joined, "other").startswith(
        "AOTC-R052 the worker's environment differs [other] (expected aotc's sources "
    )
    assert "other" not in {worker.name for worker in joined.workers()}
    (outcome,) = outcomes_of(joined, a_job("goes on"))
    assert outcome.error is None
    cluster.kill("other")


def test_a_node_that_says_what_another_aotc_says(joined: RayExecutor) -> None:
    (node,) = [each for each in joined._ray.nodes() if each["NodeName"] == "xeon"]
    said = joined._ray.put(({"schema": "aotc.worker/9", "kernel": "6.1"}, "token"))
    with pytest.raises(AotcError) as caught:
        joined._accept(node, "another", said)
    assert (caught.value.code, caught.value.where) == ("AOTC-R052", "another")


def test_a_node_that_is_lost_while_it_joins(
    joined: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(key: str) -> float:
        raise joined._ray.exceptions.GetTimeoutError

    monkeypatch.setattr(joined, "_clock_offset", lost)
    monkeypatch.setattr(joined, "_seen", set())
    monkeypatch.setattr(joined, "_nodes", {})
    monkeypatch.setattr(joined, "_refused", [])
    monkeypatch.setattr(joined, "_told", [])
    joined._look()
    # Another test's node may still be known.
    assert {error.where for error in joined._refused} >= {"xeon", "epyc", "gpu"}
    assert joined.workers() == ()


@pytest.mark.parametrize(
    ("package", "found", "expected"),
    [
        ("onnxruntime", "1.31.1", None),
        ("onnxruntime-gpu", "1.31.0", None),
        ("onnxruntime-gpu", "1.32.0", ("ONNX Runtime 1.31", "ONNX Runtime 1.32")),
        ("onnxruntime", "1.31.0", ("onnxruntime 1.31.1", "onnxruntime 1.31.0")),
    ],
)
def test_packages_of_onnx_runtime_are_of_one_version(
    joined: RayExecutor, package: str, found: str, expected: tuple[str, str] | None
) -> None:
    mine = replace(joined.workers()[0], versions={"onnxruntime": "1.31.1"})
    other = replace(mine, versions={package: found})
    assert executor_module._difference(mine, other) == expected


_CLOCK = """
import time

_true = time.time
time.time = lambda: _true() + {seconds}
"""


@pytest.mark.parametrize("seconds", [5, 90])
def test_clocks_apart_are_told_or_refused(
    cluster: Cluster, joined: RayExecutor, tmp_path: Path, seconds: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_CLOCK.format(seconds=seconds))
    name = f"ahead-{seconds}"
    paths = f"{tmp_path}{os.pathsep}{Path(executor_module.__file__).parents[3]}"
    cluster.add(name, environment={"PYTHONPATH": paths})
    cluster.wait_for(name)
    joined._look()
    found = {worker.name: worker for worker in joined.workers()}
    if seconds == 5:
        assert 4 < found[name].clock_offset_seconds < 6
        told: Lines = []
        outcomes_of(joined, log=told)
        assert (
            name,
            "AOTC-I174 the clocks are 5.0 s apart; times of this worker are later",
        ) in told
    else:
        assert refusal_of(joined, name) == (
            f"AOTC-R056 the clock of a worker is too far off [{name}] "
            "(expected at most 60 s; found +90.0 s)"
        )
    cluster.kill(name)


def test_a_full_disk_of_one_node(cluster: Cluster, joined: RayExecutor) -> None:
    small = cluster.folder / "small"
    script = f'mount -t tmpfs -o size=4m tmpfs {small} && exec "$@"'
    for unshare in (["unshare", "-m"], ["unshare", "-mr"]):
        probe = [*unshare, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        if shutil.which("unshare") and not subprocess.run(probe, capture_output=True).returncode:
            break
    else:
        pytest.skip("a file system to fill cannot be mounted here")
    cluster.add("small", prefix=[*unshare, "sh", "-c", script, "sh"])
    cluster.wait_for("small")
    joined._look()
    jobs = [
        Job(name="0", function="given_jobs:fill", request={"mib": 8}, workers=("small",)),
        Job(name="1", function="given_jobs:fill", request={"mib": 8}, workers=("xeon",)),
        Job(name="2", function="given_jobs:fill", request={"mib": 1}, workers=("small",)),
    ]
    found = outcomes_of(joined, *jobs)
    assert found[0].error is not None
    assert found[0].error.code == "AOTC-I018"
    assert found[0].worker is not None
    assert found[0].worker.name == "small"
    assert [outcome.value for outcome in found[1:]] == ["written", "written"]
    cluster.kill("small")


# -- what cannot be joined


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("head", "AOTC-I170 the address of a cluster is HOST:PORT [--on ray://head]"),
        (
            "127.0.0.1:1",
            "AOTC-I170 Ray could not be joined [--on ray://127.0.0.1:1] (found "
            "[Errno 111] Connection refused)",
        ),
    ],
)
def test_no_cluster_there(monkeypatch: pytest.MonkeyPatch, address: str, expected: str) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x")
    with pytest.raises(AotcError) as caught, RayExecutor(address):
        pass
    assert caught.value.line() == expected


def test_without_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(AotcError) as caught, RayExecutor("head:6379"):
        pass
    assert caught.value.code == "AOTC-I171"
    assert caught.value.found == "RAY_AUTH_MODE=token"
    assert str(tmp_path / ".ray" / "auth_token") in caught.value.expected


def test_with_another_token(cluster: Cluster, tmp_path: Path) -> None:
    words = [sys.executable, "-c", _DRIVER, cluster.address, str(tmp_path)]
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**cluster.environment, "PYTHONPATH": paths, "RAY_AUTH_TOKEN": "0" * 64}
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert "(found its head refuses the token)" in done.stderr
    assert not list(tmp_path.iterdir())


_HERE = """
import json
import os
import sys
from pathlib import Path
from aotc.fleet.executors.base import Job
from aotc.fleet.executors.ray import RayExecutor

with RayExecutor(jobs=1) as executor:
    (worker,) = executor.workers()
    job = Job(name="here", function="given_jobs:echo", request={"text": "x"})
    (outcome,) = executor.run([job])
    assert outcome.error is None, outcome.error
    below = [Path(place).read_bytes() for place in Path("/proc").glob("[0-9]*/cmdline")]
    token = os.environ["RAY_AUTH_TOKEN"].encode()
    told = any(token in words for words in below)
    folder = executor._ray._private.worker._global_node.get_session_dir_path()
print(json.dumps([worker.serves.cpus, told, str(Path(folder).parent)]))
"""


def test_ray_is_started_here_twice_at_once(cluster: Cluster, tmp_path: Path) -> None:
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    # Whatever cluster is joined otherwise.
    environment = {**cluster.environment, "PYTHONPATH": paths, "RAY_ADDRESS": cluster.address}
    del environment["RAY_AUTH_TOKEN"]
    words = [sys.executable, "-c", _HERE]
    drivers = [
        subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [json.loads(driver.communicate()[0]) for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0]
    assert [each[:2] for each in said] == [[len(usable_processors()), False]] * 2
    folders = [each[2] for each in said]
    assert folders[0] != folders[1]
    assert not any(Path(folder).exists() for folder in folders)
    commands = [place.read_bytes() for place in Path("/proc").glob("[0-9]*/cmdline")]
    assert not any(folder.encode() in words for folder in folders for words in commands)


def test_folders_of_killed_processes_are_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(executor_module, "_MAX_FOLDER", 4096)
    monkeypatch.setattr(executor_module, "gettempdir", lambda: str(tmp_path))
    for name in ("aotc-ray-left", "other"):
        (tmp_path / name / "session").mkdir(parents=True)
    (tmp_path / "aotc-ray-new").mkdir()
    (tmp_path / "aotc-ray-link").symlink_to(tmp_path / "other")
    kept = {"other", "aotc-ray-new", "aotc-ray-link"}
    with executor_module._folder_of_ray() as first:
        (Path(first) / "session").mkdir()
        with executor_module._folder_of_ray() as second:
            found = {path.name for path in tmp_path.iterdir()}
            assert found == {*kept, Path(first).name, Path(second).name}
    assert {path.name for path in tmp_path.iterdir()} == kept
    assert (tmp_path / "other" / "session").is_dir()


def test_a_shared_folder_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AOTC_FLEET_SHARED", str(tmp_path / "missing"))
    with pytest.raises(AotcError) as caught, RayExecutor():
        pass
    assert caught.value.line().startswith("AOTC-I173 the shared folder cannot be used [")
