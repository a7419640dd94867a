"""A child that is forked from a process with a loaded model: refused, not hung, not crashed."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from user_calls import UserCalls, answers

from aotc.base.errors import AotcError
from aotc.session.device.cuda_place import CudaPlace

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")

USES = ("run", "route", "bind", "bound", "warm", "enter", "tensor", "array", "shared")
SECONDS = 60


@pytest.fixture(autouse=True)
def _threads_are_no_surprise() -> Iterator[None]:
    # Of Python from 3.12 on, about a fork beside threads.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@pytest.fixture
def busy(setting: UserCalls) -> Iterator[None]:
    """Another thread runs the model all the time, as that of a server does."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            setting.model.run(setting.inputs)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    ended.set()
    thread.join()


def child(act: Callable[[], object]) -> int:
    """Fork a child that does this; its status, or minus the signal that ended it.

    What other tests left goes first: a session of ONNX Runtime that a child collects waits for
    threads which only its parent has.
    """
    gc.collect()
    pid = os.fork()
    if not pid:
        status = 70
        try:
            act()
            status = 0
        except AotcError as error:
            status = int(error.code.removeprefix("AOTC-R"))
        finally:
            os._exit(status)
    return status_of(pid)


def status_of(pid: int) -> int:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail("the child hangs")


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("use", USES)
def test_the_parents_model_is_refused(use: str, setting: UserCalls) -> None:
    model, inputs = setting.model, setting.inputs
    bound = model.bind(inputs)
    uses: dict[str, Callable[[], object]] = {
        "run": lambda: model.run(inputs),
        "route": lambda: model.route(inputs),
        "bind": lambda: model.bind(inputs),
        "bound": lambda: bound(),
        "warm": model.warm,
        "enter": model.__enter__,
        "tensor": bound.outputs["logits"].numpy,
        "array": lambda: np.asarray(bound.inputs["image"]),
        "shared": lambda: np.from_dlpack(bound.outputs["logits"]),
    }
    for _ in range(10):
        assert child(uses[use]) == 26
    assert bound()
    assert model.run(inputs)


@pytest.mark.usefixtures("busy")
def test_a_child_loads_its_own(setting: UserCalls) -> None:
    def act() -> None:
        with setting.load() as model:
            model.run(setting.inputs)

    for _ in range(3):
        assert child(act) == 0


def test_cuda_of_the_parent_is_refused_in_a_child() -> None:
    place = CudaPlace()
    for _ in range(2):
        assert child(lambda: CudaPlace().settings()) == 0
    place.settings()
    for use in (place.settings, place.device, place.begin, lambda: CudaPlace().settings()):
        assert child(use) == 35
    place.settings()


@pytest.mark.usefixtures("busy")
def test_what_was_counted_can_be_read(setting: UserCalls) -> None:
    model = setting.model

    def act() -> None:
        assert "parent" in repr(model)
        assert not model.ready
        assert model.telemetry.snapshot().calls
        assert model.findings() is not None
        model.telemetry.reject("AOTC-R001")

    for _ in range(10):
        assert child(act) == 0


def test_what_a_child_closes_and_forgets_is_still_the_parents(
    setting: UserCalls, tmp_path: Path
) -> None:
    from aotc.runtime.store.entries import hold_exclusively

    record = tmp_path / "shapes.jsonl"
    model = setting.load(record=record)
    bound = model.bind(setting.inputs)
    model.run(setting.inputs)
    kept: dict[str, Any] = {"model": model, "bound": bound}

    def act() -> None:
        nonlocal model, bound
        kept["model"].close()
        kept.clear()
        del model, bound
        gc.collect()

    assert child(act) == 0
    assert not record.exists()
    entry = model.payload.parent
    assert hold_exclusively(entry) is None
    assert bound()
    model.run(setting.inputs)
    model.close()
    # The waiting lines were written by this process, once.
    assert len(record.read_text().splitlines()) == 2


def test_a_child_holds_no_lock_for_its_parent(setting: UserCalls, tmp_path: Path) -> None:
    from aotc.runtime.store.entries import hold_exclusively

    model = setting.load(store=tmp_path / "store")
    entry = model.payload.parent
    ready, done = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(done, b"1")
        time.sleep(SECONDS)
        os._exit(0)
    try:
        os.read(ready, 1)
        model.close()
        # As that child closed its copy: pruning could remove the entry.
        held = hold_exclusively(entry)
        assert held is not None
        held.close()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(done)


PROGRAM = """
import os, sys
import aotc
artifact, key = sys.argv[1:]
model = aotc.load(artifact, key=key)
pid = os.fork()
if pid:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_child_ends_as_any_program(setting: UserCalls) -> None:
    # Plain ONNX Runtime crashes there: it waits for threads that the child does not have.
    command = [sys.executable, "-c", PROGRAM, str(setting.artifact), str(setting.key)]
    done = subprocess.run(command, check=False, timeout=SECONDS)
    assert done.returncode == 0


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_multiprocessing_load_their_own(method: str, setting: UserCalls) -> None:
    given = (setting.artifact, setting.key, setting.inputs)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.starmap_async(answers, [given] * 2).get(SECONDS) == [1, 1]


def test_a_lock_of_a_module_is_free_in_a_child() -> None:
    from aotc.providers import plugin
    from aotc.session.device.capture_gate import GATE

    locked, release = threading.Event(), threading.Event()

    def hold_both() -> None:
        with plugin._registering, GATE.alone():
            locked.set()
            release.wait(SECONDS)

    thread = threading.Thread(target=hold_both)
    thread.start()
    locked.wait(SECONDS)

    def act() -> None:
        with plugin._registering, GATE.used():
            pass
        with GATE.alone():
            pass

    try:
        assert child(act) == 0
    finally:
        release.set()
        thread.join()
