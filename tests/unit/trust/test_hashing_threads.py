"""Threads that hash end with whatever ends the verification."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from aotc.trust.digests import _in_threads


def _hashing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "aotc-digests"]


def _interrupting(at: str) -> Callable[[Any], Any]:
    """Hashes slowly; the first call in the main or another thread interrupts the main thread."""
    done: list[str] = []

    def check(span: Any) -> Any:
        is_main = threading.current_thread() is threading.main_thread()
        if not done and is_main == (at == "main"):
            done.append(at)
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.02)
        return None, 1

    return check


@pytest.mark.parametrize("at", ["main", "another"])
def test_an_interrupt_ends_all_threads(at: str) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    spans: Any = list(range(200))
    try:
        with pytest.raises(KeyboardInterrupt):
            _in_threads(4, _interrupting(at), spans)
        assert _hashing() == []
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_of_a_thread_is_raised_and_no_further_span_is_taken() -> None:
    taken: list[int] = []

    def check(span: Any) -> Any:
        taken.append(span)
        if span == 3:
            raise OSError("lost")
        time.sleep(0.01)
        return None, 1

    spans: Any = list(range(400))
    with pytest.raises(OSError, match="lost"):
        _in_threads(3, check, spans)
    assert len(taken) < 40
    assert _hashing() == []
