"""The executor `ray`: jobs on the machines of a Ray cluster, which it starts here or joins.

A job is a task of Ray on a node that this module chose: one that serves what the job needs, has
room for it, and has the environment that this machine has.  A task is never run again by Ray.  A
job whose worker was lost is given to another one; a job that ends in an error of its own is not.

    Ray's task (`_serve`)  →  a process forked for the job, within limits  →  messages back

Files come and go as `aotc.fleet.executors.carrying` says.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shutil
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from time import monotonic
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from aotc.base.errors import AotcError, with_others
from aotc.base.files.failures import cannot_read
from aotc.base.files.reading import file_sha256
from aotc.base.files.work_folders import lock_path, temporary_folder
from aotc.base.records import record, replace
from aotc.fleet.executors.base import Executor, Job, JobOutcome, Log
from aotc.fleet.executors.carrying import (
    SHARED_BYTES,
    Carried,
    Ended,
    Message,
    Order,
    Received,
    files_of,
    limits_for,
    pieces_of,
    run_order,
    share,
)
from aotc.fleet.hosts import describe_host, unserved
from aotc.host.cpu import usable_processors
from aotc.spec.codec import Json, ParseError, decode, encode
from aotc.spec.fleet import Needs, WorkerDescription
from aotc.spec.providers import RUNTIMES
from aotc.tools.model_sandbox import Sandbox

SHARED_VARIABLE: Final = "AOTC_FLEET_SHARED"
"""A folder that all machines of a cluster see under one path, for large files."""
MAX_ATTEMPTS: Final = 3
# A clock that is further off is told of, or refused: what the worker signs would have its times.
_CLOCKS: Final = "AOTC-I174"
_TOLD_SECONDS: Final = 1.0
_REFUSED_SECONDS: Final = 60.0
_CLOCK_READINGS: Final = 3
_JOIN_SECONDS: Final = 10.0
# Beyond a job's own limit, between two messages of its worker: its process was stopped, say.
_SILENT_SECONDS: Final = 600.0
# A busy machine takes long to start a process.
_ANSWER_SECONDS: Final = 120.0
# How often nodes that came and went are looked for.
_LOOK_SECONDS: Final = 5.0
_STORE_BYTES: Final = 1 << 30
# Of an amount, as Ray counts.
_DIGITS: Final = 4
_MODE, _TOKEN, _TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
# Ray's sockets lie below its folder; the system takes 107 bytes for the name of one.
_MAX_FOLDER: Final = 20
_FOLDER: Final = "aotc-ray-"


@record
class _Node:
    """A node of Ray, as it described itself, and what of it is free by our own count."""

    key: str
    worker: WorkerDescription
    free: dict[str, float]
    content: set[str]


@record(kw_only=False)
class _Tried:
    """A job, and how many workers were lost with it."""

    job: Job
    lost: int = 0


@record
class _Running:
    """A job on a node."""

    tried: _Tried
    node: _Node
    received: Received
    asked: dict[str, float]
    errors: list[AotcError]
    until: float = math.inf
    """When its next message is missing; none is before its first one."""


class RayExecutor(Executor):
    """Runs jobs on the nodes of Ray."""

    name: ClassVar[str] = "ray"

    def __init__(self, address: str = "", jobs: int | None = None) -> None:
        """`address` is HOST:PORT of a cluster's head; empty: Ray is started here."""
        super().__init__(address, jobs)
        self._shared = os.environ.get(SHARED_VARIABLE, "")
        self._stack = ExitStack()
        self._nodes: dict[str, _Node] = {}
        self._seen: set[str] = set()
        self._count = 0
        self._refused: list[AotcError] = []
        self._told: list[tuple[str, str]] = []
        self._digests: dict[tuple[str, int, int], str] = {}
        self._sent: dict[str, tuple[int, tuple[Any, ...]]] = {}

    def __enter__(self) -> Self:
        """Raises AOTC-I019, I170 to I173, and R052 and R056 if no worker can be used."""
        with ExitStack() as stack:
            self._folder = stack.enter_context(temporary_folder("fleet"))
            self._require_shared()
            self._ray = self._join() if self.address else self._start(stack)
            stack.callback(self._ray.shutdown)
            self._mine = describe_host(socket.gethostname())
            self._serve = self._ray.remote(_serve)
            self._look()
            if not self._nodes:
                raise self._nobody()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._sent.clear()
        self._stack.close()

    def workers(self) -> tuple[WorkerDescription, ...]:
        """The nodes that have cores and were not refused."""
        return tuple(node.worker for node in self._nodes.values())

    def refusal(self, needs: Needs) -> AotcError | None:
        """Why no node serves `needs`; None: one does."""
        return self._unserved(needs, ())

    def ask(self, job: Job) -> Mapping[str, JobOutcome]:
        """What becomes of the job on each node."""
        jobs = [replace(job, workers=(each.name,)) for each in self.workers()]
        return {
            outcome.job.workers[0]: replace(outcome, job=job, folder=None)
            for outcome in self.run(jobs)
        }

    def run(self, jobs: Sequence[Job], log: Log | None = None) -> Generator[JobOutcome, None, None]:
        """What became of each job; see `Executor.run`."""
        waiting = [_Tried(job) for job in jobs]
        running: dict[Any, _Running] = {}
        looked = monotonic()
        self._tell(log)
        try:
            while waiting or running:
                self._tell(log)
                for tried in list(waiting):
                    if self.jobs is not None and len(running) >= self.jobs:
                        break
                    try:
                        started = self._begin(tried)
                    except AotcError as error:
                        waiting.remove(tried)
                        yield JobOutcome(job=tried.job, error=error, attempts=max(tried.lost, 1))
                        continue
                    if started is None:
                        continue
                    waiting.remove(tried)
                    stream, begun = started
                    running[stream] = begun
                    if self.begun is not None:
                        self.begun(tried.job)
                    if log is not None:
                        log(tried.job.name, f"on {begun.node.worker.name}")
                if not running:
                    continue
                streams = list(running)
                # All that have a message, so that none waits behind one that tells much.
                ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=0.0)
                if not ready:
                    ready, _ = self._ray.wait(streams, timeout=_LOOK_SECONDS)
                now = monotonic()
                silent = [each for each in streams if running[each].until < now]
                for stream in dict.fromkeys((*ready, *silent)):
                    outcome: JobOutcome | BaseException | None
                    if stream in ready:
                        outcome = self._next(stream, running[stream], log)
                    else:
                        self._ray.cancel(stream, force=True)
                        outcome = RuntimeError("it does not answer")
                    if outcome is None:
                        until = monotonic() + running[stream].tried.job.seconds + _SILENT_SECONDS
                        running[stream] = replace(running[stream], until=until)
                        continue
                    ended = running.pop(stream)
                    self._leave(ended)
                    if isinstance(outcome, JobOutcome):
                        yield outcome
                    else:
                        self._require_alive(ended.node)
                        again = self._after_loss(ended.tried, outcome, log)
                        if isinstance(again, JobOutcome):
                            yield again
                        else:
                            waiting.insert(0, again)
                    shutil.rmtree(ended.received.folder.parent, ignore_errors=True)
                if monotonic() - looked > _LOOK_SECONDS:
                    self._look()
                    looked = monotonic()
        finally:
            self._tell(log)
            for stream, ended in running.items():
                self._leave(ended)
                with contextlib.suppress(self._ray.exceptions.RayError):
                    self._ray.cancel(stream, force=True)

    # Starting and joining.

    def _start(self, stack: ExitStack) -> Any:
        """Ray with one node, on this machine, for the life of this executor."""
        os.environ[_MODE] = "token"
        if not os.environ.get(_TOKEN_FILE):
            os.environ.setdefault(_TOKEN, secrets.token_hex(32))
        return self._init(
            # Not one that RAY_ADDRESS names.
            address="local",
            num_cpus=max(self.jobs or 0, len(usable_processors())),
            include_dashboard=False,
            object_store_memory=_STORE_BYTES,
            _temp_dir=stack.enter_context(_folder_of_ray()),
        )

    def _join(self) -> Any:
        """The cluster at the address; raises AOTC-I170 or I171."""
        host, _, port = self.address.rpartition(":")
        if not host or not port.isdecimal():
            raise AotcError(
                "AOTC-I170",
                "the address of a cluster is HOST:PORT",
                where=f"--on ray://{self.address}",
                fix="Name the head and its port, such as --on ray://head:6379.",
            )
        os.environ.setdefault(_MODE, "token")
        kept = Path("~/.ray/auth_token").expanduser()
        stated = os.environ.get(_TOKEN) or os.environ.get(_TOKEN_FILE)
        if os.environ[_MODE] != "token" or not (stated or kept.is_file()):
            raise AotcError(
                "AOTC-I171",
                "there is no token for the cluster",
                where=f"--on ray://{self.address}",
                expected=f"{_TOKEN}, {_TOKEN_FILE} or {kept}",
                found=f"{_MODE}={os.environ[_MODE]}",
            )
        try:
            socket.create_connection((host, int(port)), _JOIN_SECONDS).close()
        except OSError as error:
            raise self._not_joined(str(error)) from None
        return self._init(address=self.address)

    def _init(self, **options: Any) -> Any:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if self.address:
            # A head that is there answers at once, or refuses the token.
            os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "2")
        try:
            import ray
        except ModuleNotFoundError as error:
            if error.name != "ray":
                raise
            raise AotcError(
                "AOTC-I019",
                "'--on ray' needs the package ray",
                fix="Install it: pip install 'aotc[fleet]'",
            ) from None
        main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGTERM)
        try:
            # Ray has workers look for modules in the folder in which it is called.
            with contextlib.chdir(self._folder):
                ray.init(log_to_driver=False, logging_level="critical", **options)
        except (ray.exceptions.RayError, RuntimeError, ValueError, OSError) as error:
            cause = str(error.__cause__ or error)
            refused = "InvalidAuthToken" in cause
            found = "its head refuses the token" if refused else str(error)
            raise self._not_joined(found) from error
        finally:
            if main:
                signal.signal(signal.SIGTERM, handler)
        return ray

    def _not_joined(self, found: str) -> AotcError:
        what = "joined" if self.address else "started"
        first = next((line.strip() for line in found.splitlines() if line.strip()), "")
        return AotcError(
            "AOTC-I170",
            f"Ray could not be {what}",
            where=f"--on ray://{self.address}" if self.address else "--on ray",
            found=first,
        )

    def _require_shared(self) -> None:
        if self._shared and not os.access(self._shared, os.R_OK | os.W_OK | os.X_OK):
            raise AotcError(
                "AOTC-I173",
                "the shared folder cannot be used",
                where=self._shared,
                found=f"{SHARED_VARIABLE} names no folder that this user may write",
            )

    # The nodes.

    def _look(self) -> None:
        """Drop nodes that ended, and have new ones describe themselves."""
        try:
            nodes = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        except self._ray.exceptions.RayError:
            # The head ended, and with it all.
            raise self._nobody() from None
        for key in self._nodes.keys() - nodes.keys():
            lost = self._nodes.pop(key)
            self._told.append((lost.worker.name, "is lost"))
        new = [node for key, node in nodes.items() if key not in self._seen]
        names = Counter(_name_of(node) for node in nodes.values())
        asked = []
        for node in new:
            self._seen.add(node["NodeID"])
            if not node["Resources"].get("CPU"):
                continue
            name = _name_of(node)
            if names[name] > 1:
                name = f"{name}-{node['NodeID'][:8]}"
            described = self._on(node["NodeID"], _describe).remote(name)
            asked.append((node, name, described))
        for node, name, described in asked:
            try:
                self._accept(node, name, described)
            except AotcError as error:
                self._refused.append(error)
                self._told.append((name, error.line()))

    def _require_alive(self, node: _Node) -> None:
        """Drop a node that lost a job and does not answer: Ray may take a while to notice."""
        if node.key not in self._nodes:
            return
        try:
            self._ray.get(self._on(node.key, _clock).remote(), timeout=_ANSWER_SECONDS)
        except self._ray.exceptions.RayError:
            del self._nodes[node.key]
            self._told.append((node.worker.name, "is lost"))

    def _accept(self, node: Mapping[str, Any], name: str, described: Any) -> None:
        """Take a node into use; raises AOTC-R052 and R056."""
        try:
            document, mode = self._ray.get(described, timeout=_ANSWER_SECONDS)
            offset = self._clock_offset(node["NodeID"])
            worker = decode(WorkerDescription, document)
        except (self._ray.exceptions.RayError, ParseError) as error:
            raise _differs(name, "a worker that runs this version of aotc", _last(error)) from None
        if mode != "token":
            raise _differs(name, f"{_MODE}=token", f"{_MODE}={mode}")
        difference = _difference(self._mine, worker)
        if difference is not None:
            raise _differs(name, *difference)
        if abs(offset) > _REFUSED_SECONDS:
            raise AotcError(
                "AOTC-R056",
                "the clock of a worker is too far off",
                where=name,
                expected=f"at most {_REFUSED_SECONDS:g} s",
                found=f"{offset:+.1f} s",
            )
        if abs(offset) > _TOLD_SECONDS:
            line = f"{_CLOCKS} the clocks are {abs(offset):.1f} s apart; times of this worker "
            self._told.append((name, f"{line}are {'later' if offset > 0 else 'earlier'}"))
        serves = _serves(node["Resources"], worker)
        self._nodes[node["NodeID"]] = _Node(
            key=node["NodeID"],
            worker=replace(worker, serves=serves, clock_offset_seconds=round(offset, 3)),
            free=_amounts(serves),
            content=set(),
        )

    def _clock_offset(self, key: str) -> float:
        """By how many seconds a node's clock is ahead of ours, of the quickest of some readings."""
        best = (float("inf"), 0.0)
        for _ in range(_CLOCK_READINGS):
            before = time.time()
            there = self._ray.get(self._on(key, _clock).remote(), timeout=_ANSWER_SECONDS)
            after = time.time()
            best = min(best, (after - before, there - (before + after) / 2))
        wait, offset = best
        return 0.0 if abs(offset) <= wait / 2 else offset

    def _on(self, key: str, function: Any) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        place = NodeAffinitySchedulingStrategy(key, soft=False)
        return self._ray.remote(function).options(
            num_cpus=0, max_retries=0, scheduling_strategy=place
        )

    def _unserved(self, needs: Needs, workers: Sequence[str]) -> AotcError | None:
        found = []
        for node in self._nodes.values():
            if workers and node.worker.name not in workers:
                continue
            lacks = unserved(needs, node.worker)
            if lacks is None:
                return None
            found.append(lacks)
        return with_others(found) if found else self._nobody()

    def _nobody(self) -> AotcError:
        return AotcError(
            "AOTC-R055",
            "no worker is left",
            where=f"--on ray://{self.address}" if self.address else "--on ray",
            also=tuple(self._refused),
        )

    # One job.

    def _begin(self, tried: _Tried) -> tuple[Any, _Running] | None:
        """Start the job on the node that suits best; None: it has to wait for room.

        Raises AOTC-I164 or R055 if no node will ever have it, or I001, I018 or I173.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        job = tried.job
        refused = self._unserved(job.needs, job.workers)
        if refused is not None:
            raise refused
        serving = [
            node
            for node in self._nodes.values()
            if (not job.workers or node.worker.name in job.workers)
            and unserved(job.needs, node.worker) is None
        ]
        asked = _amounts(job.needs)
        if job.memory_bytes and "memory" not in asked:
            # An estimate refuses nothing: what takes more has the largest node for itself.
            largest = max(node.worker.serves.memory_bytes or 0 for node in serving)
            asked["memory"] = float(min(job.memory_bytes, largest))
        able = [
            node
            for node in serving
            # A node that does not say how much memory it has is not asked for it.
            if all(node.free.get(name, math.inf) >= amount for name, amount in asked.items())
        ]
        if not able:
            return None
        self._count += 1
        received = Received(self._folder / f"{self._count}" / "out", self._shared)
        files = self._carried(job)
        large = {file.sha256 for file in files}
        node = max(able, key=lambda each: (len(large & each.content), each.free["CPU"]))
        order = Order(
            # Paths of this machine say nothing there.
            job=replace(job, files=dict.fromkeys(job.files, Path())),
            files=files,
            memory_bytes=job.needs.memory_bytes or node.worker.serves.memory_bytes,
            shared=self._shared,
        )
        asked = {name: amount for name, amount in asked.items() if name in node.free}
        custom = {k: v for k, v in asked.items() if k not in ("CPU", "GPU", "memory")}
        stream = self._serve.options(
            num_returns="streaming",
            max_retries=0,
            num_cpus=asked["CPU"],
            num_gpus=asked.get("GPU", 0.0),
            memory=int(asked.get("memory", 0.0)) or None,
            resources=custom or None,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.key, soft=False),
            _generator_backpressure_num_objects=4,
        ).remote(order)
        for name, amount in asked.items():
            node.free[name] = round(node.free[name] - amount, _DIGITS)
        node.content.update(large)
        return stream, _Running(
            tried=tried,
            node=node,
            received=received,
            asked=asked,
            errors=[],
        )

    def _leave(self, ended: _Running) -> None:
        with contextlib.suppress(AotcError):
            ended.received.close()
        for name, amount in ended.asked.items():
            ended.node.free[name] = round(ended.node.free[name] + amount, _DIGITS)

    def _next(
        self, stream: Any, running: _Running, log: Log | None
    ) -> JobOutcome | BaseException | None:
        """Take a job's next message: its outcome, or how its worker was lost; None: it goes on."""
        job = running.tried.job
        try:
            message: Message = self._ray.get(next(stream))
        except StopIteration:
            return RuntimeError("it ended before its job")
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, self._ray.exceptions.RayError):
                # Pieces of its files were lost, so they are sent anew.
                self._sent.clear()
                assert isinstance(error.cause, Exception)
                return error.cause
            broken = AotcError("AOTC-R999", _last(error), where=job.name)
            return JobOutcome(job=job, error=broken, worker=running.node.worker)
        except self._ray.exceptions.RayError as error:
            assert isinstance(error, Exception)
            return error
        kind = message[0]
        try:
            if kind == "log":
                if log is not None:
                    for line in message[1]:
                        log(job.name, line)
            elif kind == "error":
                running.errors.append(message[1])
            elif kind not in ("begin", "end"):
                running.received.take(message)
        except AotcError as error:
            running.errors.append(error)
        if kind != "end":
            return None
        ended: Ended = message[1]
        try:
            running.received.verify(ended.digests)
        except AotcError as error:
            running.errors.append(error)
        return JobOutcome(
            job=job,
            value=ended.value,
            error=running.errors[0] if running.errors else None,
            folder=running.received.folder,
            seconds=ended.seconds,
            peak_memory_bytes=ended.peak_memory_bytes,
            worker=running.node.worker,
            attempts=running.tried.lost + 1,
        )

    def _after_loss(
        self, tried: _Tried, cause: BaseException, log: Log | None
    ) -> JobOutcome | _Tried:
        """The job again, or its outcome if it lost too many workers."""
        tried = replace(tried, lost=tried.lost + 1)
        what = type(cause).__name__ if not isinstance(cause, RuntimeError) else str(cause)
        if log is not None:
            log(tried.job.name, f"its worker was lost: {what}")
        if tried.lost < MAX_ATTEMPTS:
            return tried
        error = AotcError(
            "AOTC-R053",
            f"the job lost its worker {tried.lost} times",
            where=tried.job.name,
            found=what,
        )
        return JobOutcome(job=tried.job, error=error, attempts=tried.lost)

    def _carried(self, job: Job) -> tuple[Carried, ...]:
        """The files of a job, by their content; each is put into the object store once."""
        found = []
        for name, path in files_of(job).items():
            try:
                state = path.stat()
                key = (str(path), state.st_size, state.st_mtime_ns)
                sha256 = self._digests.get(key) or file_sha256(path)
                self._digests[key] = sha256
                pieces: tuple[Any, ...] = ()
                if self._shared and state.st_size > SHARED_BYTES:
                    share(path, sha256, Path(self._shared))
                else:
                    pieces = self._put(sha256, path, state.st_size)
            except OSError as error:
                raise cannot_read(error, "cannot read a file of the job", str(path)) from None
            found.append(Carried(path=name, sha256=sha256, size=state.st_size, pieces=pieces))
        return tuple(found)

    def _put(self, sha256: str, path: Path, size: int) -> tuple[Any, ...]:
        """The pieces of a file in the object store; those put longest ago are let go of."""
        if sha256 not in self._sent:
            kept = sum(each for each, _ in self._sent.values())
            while self._sent and kept + size > _STORE_BYTES // 2:
                # A job that has them keeps them.
                kept -= self._sent.pop(next(iter(self._sent)))[0]
            try:
                self._sent[sha256] = (size, tuple(map(self._ray.put, pieces_of(path))))
            except self._ray.exceptions.RayError as error:
                raise AotcError(
                    "AOTC-I018",
                    "Ray's object store takes no more",
                    where=str(path),
                    found=_last(error),
                    fix=f"Free space below its folder, or name a shared one: {SHARED_VARIABLE}.",
                ) from None
        return self._sent[sha256][1]

    def _tell(self, log: Log | None) -> None:
        for name, line in self._told:
            if log is not None:
                log(name, line)
        self._told.clear()


@contextlib.contextmanager
def _folder_of_ray() -> Iterator[str]:
    """A folder for a Ray that is started here; what killed processes left of theirs is removed.

    Its name is too short to state its process, as those of other folders do: its lock tells.
    """
    parent = gettempdir()
    if len(parent) > _MAX_FOLDER:
        parent = "/tmp"  # noqa: S108 (the folder made in it is this user's alone)
    for left in Path(parent).glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError):
            # One that is empty may be about to be locked.
            if left.lstat().st_uid != os.geteuid() or not any(left.iterdir()):
                continue
            held = lock_path(left)
            if held is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(held)
    made = TemporaryDirectory(prefix=_FOLDER, dir=parent, ignore_cleanup_errors=True)
    with made as folder:
        held = lock_path(Path(folder))
        try:
            yield folder
        finally:
            if held is not None:
                os.close(held)


def _last(error: Exception) -> str:
    """The last line of what an error says, which names its cause."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def _name_of(node: Mapping[str, Any]) -> str:
    """The name that a node was given, else that of its machine."""
    given = node["NodeName"]
    return str(given if given != node["NodeManagerAddress"] else node["NodeManagerHostname"])


def _serves(resources: Mapping[str, float], worker: WorkerDescription) -> Needs:
    """What a node has by Ray's count."""
    own = ("CPU", "GPU", "memory", "object_store_memory")
    return Needs(
        cpus=resources.get("CPU", 0.0),
        memory_bytes=int(resources["memory"]) if "memory" in resources else None,
        num_gpus=resources.get("GPU", 0.0),
        accelerator_type=worker.serves.accelerator_type if resources.get("GPU") else "",
        resources={
            name: amount
            for name, amount in resources.items()
            if name not in own and not name.startswith(("node:", "accelerator_type:"))
        },
    )


def _amounts(needs: Needs) -> dict[str, float]:
    """The same as Ray's resources."""
    resources = {name: amount for name, amount in needs.resources.items() if amount}
    amounts = {"CPU": needs.cpus, **resources}
    if needs.num_gpus:
        amounts["GPU"] = needs.num_gpus
    if needs.memory_bytes is not None:
        amounts["memory"] = float(needs.memory_bytes)
    return {name: max(round(amount, _DIGITS), 10**-_DIGITS) for name, amount in amounts.items()}


def _difference(mine: WorkerDescription, other: WorkerDescription) -> tuple[str, str] | None:
    """What must be equal and is not, here and there; None: all is.

    What machines are of different kinds for may differ: the CPU with its ISA, GPUs, and which of
    ONNX Runtime's packages is installed.  A plan asks each of them what it can build.
    """
    for package in sorted({*mine.versions, *other.versions}):
        here, there = mine.versions.get(package), other.versions.get(package)
        if here != there and ((here and there) or package not in RUNTIMES):
            return f"{package} {here or 'none'}", f"{package} {there or 'none'}"
    here, there = _runtime_of(mine), _runtime_of(other)
    if here != there and here and there:
        return f"ONNX Runtime {here}", f"ONNX Runtime {there}"
    if mine.sources != other.sources:
        return f"aotc's sources {mine.sources[:12]}", f"aotc's sources {other.sources[:12]}"
    return None


def _runtime_of(worker: WorkerDescription) -> str:
    """The minor version of ONNX Runtime: the last number of its packages' versions may differ."""
    found = [each for package, each in worker.versions.items() if package in RUNTIMES]
    return ".".join(max(found, default="").split(".")[:2])


def _differs(name: str, expected: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-R052",
        "the worker's environment differs",
        where=name,
        expected=expected,
        found=found,
    )


# What runs on the nodes, in processes of Ray.


def _describe(name: str) -> tuple[Json, str]:
    """This node, and how Ray authenticates here."""
    return encode(describe_host(name), full=True), os.environ.get(_MODE, "")


def _clock() -> float:
    return time.time()


_sandboxes: dict[tuple[int | None, str], Sandbox] = {}


def _serve(order: Order) -> Iterator[Message]:
    """Run a job in a process that is forked for it; the messages, as they come.

    The process that forks stays for the next job of the same kind.  It, and the job, end with this
    one.
    """
    import ray

    kind = (order.memory_bytes, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    sandbox = _sandboxes.get(kind)
    if sandbox is None:
        for other in _sandboxes.values():
            other.__exit__(None, None, None)
        _sandboxes.clear()
        # No process of a job needs the token.
        os.environ.pop(_TOKEN, None)
        sandbox = _sandboxes[kind] = Sandbox(limits_for(order.memory_bytes)).__enter__()
    yield from run_order(order, ray.get, sandbox)
