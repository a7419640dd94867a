"""An exception of a signal's handler, at every place where one can come.

It reaches the caller as it is, says nothing of the artifact, and leaves nothing open.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from interruptions import Interruption, Stop, interrupted, opened
from user_calls import UserCalls

CALLS = ("verify", "load", "load and close", "install", "run", "bind", "bound", "recorded")


@pytest.fixture(scope="module")
def calls(setting: UserCalls) -> Iterator[dict[str, Callable[[], Any]]]:
    """The calls that are interrupted; `load` has the last reference to its model dropped."""
    bound = setting.model.bind(setting.inputs)
    recorded = setting.load(record=setting.root / "shapes.jsonl")
    yield {
        "verify": setting.verify,
        "load": lambda: setting.load() and None,
        "load and close": lambda: setting.load().close(),
        "install": setting.install,
        "run": lambda: setting.model.run(setting.inputs),
        "bind": lambda: setting.model.bind(setting.inputs) and None,
        "bound": lambda: bound(setting.inputs),
        "recorded": lambda: recorded.run(setting.inputs),
    }
    recorded.close()


@pytest.mark.parametrize("steps", [False, True], ids=["lines", "steps"])
@pytest.mark.parametrize("name", CALLS)
def test_at_every_place(name: str, steps: bool, calls: dict[str, Callable[[], Any]]) -> None:
    call = calls[name]
    call()
    count = interrupted(call, None, Stop, steps=steps)
    if steps and not count:
        pytest.skip("this release of Python traces no steps")
    assert count > 5
    before = opened()
    reached = 0
    for place in range(1, count + 1):
        kind = Interruption if place % 2 else Stop
        try:
            interrupted(call, place, kind, steps=steps)
        except kind:
            reached += 1
        # Anything else that is raised fails the test.
        assert opened() == before, f"place {place} of {count}"
    # A call may take fewer lines than the one that was counted.
    assert reached > count // 2
    call()


def test_close_at_every_place(setting: UserCalls) -> None:
    model = setting.load()
    count = interrupted(model.close, None, Stop)
    before = opened()
    for place in range(1, count + 1):
        model = setting.load()
        with pytest.raises(Stop):
            interrupted(model.close, place, Stop)
        model.close()
        del model
        assert opened() == before, f"place {place} of {count}"


@pytest.mark.parametrize("kind", [Interruption, TimeoutError, ValueError, Stop])
@pytest.mark.parametrize("name", ["verify", "load and close", "install"])
def test_by_a_handler(
    name: str, kind: type[BaseException], calls: dict[str, Callable[[], Any]]
) -> None:
    # Those of the system and of values are what files that cannot be read raise, too.
    class Late(kind):  # type: ignore[misc, valid-type]
        pass

    def ring(number: int, frame: FrameType | None) -> None:
        raise Late

    call = calls[name]
    started = time.perf_counter()
    found = call()
    took = time.perf_counter() - started
    before = opened()
    raised = 0
    handler = signal.signal(signal.SIGALRM, ring)
    try:
        for number in range(1, 16):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, took * number / 16)
                    again = call()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Late:
                raised += 1
            else:
                assert getattr(again, "verdict", None) == getattr(found, "verdict", None)
    finally:
        signal.signal(signal.SIGALRM, handler)
    assert raised
    assert opened() == before


@pytest.mark.parametrize("kind", [RuntimeError, ValueError])
def test_within_a_call_of_onnx_runtime(
    kind: type[Exception], setting: UserCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It raises these itself, and runs Python around what it computes.
    class Late(kind):  # type: ignore[misc, valid-type]
        pass

    def interrupt(*_: object) -> None:
        raise Late

    with setting.load() as model:
        model.run(setting.inputs)
        with monkeypatch.context() as patch:
            patch.setattr("onnxruntime.InferenceSession.run", interrupt)
            with pytest.raises(Late):
                model.run(setting.inputs)
        assert model.run(setting.inputs)


FIRST = """
import signal, sys

class Late(Exception):
    pass

def ring(*_):
    raise Late

def load():
    aotc.load(*sys.argv[2:3], key=sys.argv[3]).close()

signal.signal(signal.SIGALRM, ring)
import aotc
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
try:
    load()
except Late:
    pass
finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
load()
"""


@pytest.mark.parametrize("seconds", [0.03, 0.06, 0.09, 0.12, 0.18, 0.25])
def test_the_first_load_of_a_process(seconds: float, setting: UserCalls) -> None:
    # It imports numpy, whose modules in C cannot be imported again after half of it.
    artifact, key = str(setting.artifact), str(setting.key)
    command = [sys.executable, "-c", FIRST, str(seconds), artifact, key]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
