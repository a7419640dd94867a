"""Ctrl-C, termination and a closed terminal: each ends a command in the same orderly way.

Little is imported here: until the handlers are in place, Python answers Ctrl-C with a traceback.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any

_IMPORTING = "<frozen importlib._bootstrap>"
# How long an interrupt is held back, in seconds; an import may itself be what never ends.
_LONGEST = 10.0
_STEP = 0.002


class Interrupts:
    """While entered, signals that end a command raise KeyboardInterrupt, so that it cleans up.

    Not amid an import: one that is left halfway may keep a lock that another thread waits for, or
    a module half made. The interrupt is raised as soon as the import is over.
    """

    def __init__(self) -> None:
        self.seen = False
        self._entered = False
        self._held_since: float | None = None
        self._delivering = _thread.allocate_lock()
        self._before: dict[int, Any] = {}
        self._caller = sys._getframe().f_code

    def __enter__(self) -> Interrupts:
        self._entered = True
        self._caller = sys._getframe(1).f_code
        # Other threads may set no handler.
        if threading.current_thread() is threading.main_thread():
            sys.unraisablehook = self._swallowed
            self._take(signal.SIGTERM)
            # Of a terminal that is closed; 'nohup' has commands ignore it.
            hangup = getattr(signal, "SIGHUP", None)
            if hangup is not None and signal.getsignal(hangup) is signal.SIG_DFL:
                self._take(hangup)
            # Who starts a command in the background may have it ignore Ctrl-C.
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._take(signal.SIGINT)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        # From now on a signal passes; one that is being delivered has come when the lock is free.
        self._entered = False
        with self._delivering:
            pass
        if self._before:
            sys.unraisablehook = sys.__unraisablehook__
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ignore(self) -> None:
        """Ignore further signals while the interrupt is reported; SIGTERM ends the process."""
        for number in self._before:
            ends = number == signal.SIGTERM
            signal.signal(number, signal.SIG_DFL if ends else signal.SIG_IGN)

    def _take(self, number: int) -> None:
        self._before[number] = signal.signal(number, self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self._entered:
            return
        self.seen = True
        now = time.monotonic()
        if self._is_importing(frame):
            if self._held_since is None:
                self._held_since = now
                self._deliver_later(number)
            if now - self._held_since < _LONGEST:
                return
        self._held_since = None
        raise KeyboardInterrupt

    def _is_importing(self, frame: FrameType | None) -> bool:
        while frame is not None and frame.f_code is not self._caller:
            if frame.f_code.co_filename == _IMPORTING:
                return True
            frame = frame.f_back
        return False

    def _swallowed(self, unraisable: sys.UnraisableHookArgs) -> None:
        """An interrupt that fell into a callback of the interpreter's is given again."""
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._held_since = time.monotonic()
            self._deliver_later(signal.SIGINT if signal.SIGINT in self._before else signal.SIGTERM)
        else:
            sys.__unraisablehook__(unraisable)

    def _deliver_later(self, number: int) -> None:
        """Repeat a signal until it is raised, or until what it would interrupt is over.

        By a bare thread: `threading` takes locks, which the interrupted code may hold.
        """

        main = threading.main_thread().ident
        assert main is not None

        def deliver() -> None:
            while self._held_since is not None:
                time.sleep(_STEP)
                with self._delivering:
                    # It may have been raised meanwhile, and a second would end the clean-up.
                    if not self._entered or self._held_since is None:
                        return
                    # What the main thread waits for in the system is to end, too.
                    signal.pthread_kill(main, number)

        _thread.start_new_thread(deliver, ())
