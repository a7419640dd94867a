"""Ctrl-C at moments at which Python would hear nothing of it, or keep a lock for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from command import TOOLCHAIN

# The signal comes after Python's last look for one, and before the system has the thread wait: what
# `map` calls is written in C, so that there is no look between the two. The wait ends by itself.
_BEFORE_A_WAIT = """
import ctypes, operator, signal, sys, threading
from functools import partial
from aotc.cli.main import Interrupts

def work():
    with Interrupts():
        taken = threading.Lock()
        taken.acquire()
        send = partial(ctypes.CDLL(None)["raise"], int(sys.argv[1]))
        wait = partial(taken.acquire, True, 20.0)
        list(map(operator.call, [send, wait, partial(ended.append, "the wait")]))

ended = []
try:
    work()
except KeyboardInterrupt:
    print("interrupted, and ended by then:", *ended)
"""

# An interrupt at each place where Python looks for one while work is handed to a thread and waited
# for, and repeated at those that follow until it is raised, as the command does.
_AT_EVERY_PLACE = """
import os, signal, sys, threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from interruptions import LOOKS
from aotc.cli.main import Interrupts

def interrupted(call, place):
    seen, lasts = 0, {}
    handler = signal.getsignal(signal.SIGINT)

    def trace(frame, event, _):
        nonlocal seen
        frame.f_trace_opcodes = True
        if event == "opcode":
            last, lasts[frame] = lasts.get(frame), frame.f_lasti
            if last is not None and frame.f_code.co_code[last] in LOOKS:
                seen += 1
                if seen >= place:
                    handler(signal.SIGINT, frame)
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False

place = 1
while True:
    may_end = threading.Event()
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result()
    with Interrupts():
        raised = interrupted(
            lambda: wait([pool.submit(may_end.wait, 0.02)], return_when=FIRST_COMPLETED), place
        )
    may_end.set()
    (thread,) = pool._threads
    ending = threading.Thread(target=pool.shutdown, daemon=True)
    ending.start()
    ending.join(20)
    if ending.is_alive() or thread.is_alive():
        print("place", place, "keeps a lock", flush=True)
        os._exit(1)
    if not raised:
        break
    place += 1
print("places", place > 30)
"""


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, which ends in good time."""
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TOOLCHAIN), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_just_before_a_wait(number: signal.Signals) -> None:
    done = run(_BEFORE_A_WAIT, str(int(number)))
    assert (done.returncode, done.stdout) == (0, "interrupted, and ended by then:\n"), done


def test_at_no_place_a_lock_is_kept() -> None:
    done = run(_AT_EVERY_PLACE)
    assert (done.returncode, done.stdout) == (0, "places True\n"), done
