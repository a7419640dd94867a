"""The command line: the one place that turns errors and signals into text and exit statuses."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from aotc.base.errors import AotcError

# Python looks for garbage whenever so many objects were made, by default 700. Imports make many
# thousands, none of which is garbage.
_COLLECT_AFTER: Final = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, of the process's own words if none are given; returns its exit status.

    0 yes; 1 the answer is no; 2 usage; 3 the input must be fixed; 70 our bug; 130 interrupted.
    """
    if arguments is not None:
        return _answer(list(arguments))
    gc.set_threshold(_COLLECT_AFTER)
    try:
        return _answer(sys.argv[1:])
    finally:
        # Of a process that ends, the system takes everything back at once.
        gc.freeze()


def _answer(words: list[str]) -> int:
    _take_closed()
    # What else is imported is imported in there, so that an interrupt may come early.
    with Interrupts() as interrupts:
        try:
            return _run(words, interrupts)
        except KeyboardInterrupt:
            interrupts.ignore()
            from aotc.base.errors import AotcError

            return _fail(AotcError("AOTC-I025", "the command was interrupted"), words)


def _take_closed() -> None:
    """Open the null device in place of standard streams that are closed.

    Otherwise the next file that is opened gets that number, and a library that writes to standard
    error writes into the file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _run(words: list[str], interrupts: Interrupts) -> int:
    from aotc.base.errors import EXIT_NO, AotcError
    from aotc.cli import terminal
    from aotc.cli.given import before_operands

    terminal.prepare()
    try:
        with terminal.escaped_warnings():
            options = before_operands(words)
            kept = [word for word in options if word != "--debug"]
            status = _dispatch([*kept, *words[len(options) :]])
            with terminal.answering(sys.stdout):
                sys.stdout.flush()
            return status
    except BrokenPipeError:
        # The reader has gone; what is still buffered must not fail again at exit.
        terminal.silence(sys.stdout)
        return EXIT_NO
    except Exception as error:
        # Whatever error follows on a signal is the interrupt: a native module whose loading is
        # interrupted raises ImportError.
        if interrupts.seen:
            raise KeyboardInterrupt from None
        return _fail(error if isinstance(error, AotcError) else _unforeseen(error), words)


def _dispatch(words: list[str]) -> int:
    import typer

    from aotc.cli.commands import all_commands

    command = all_commands()
    if (shell := os.environ.get("_AOTC_COMPLETE")) in ("bash", "zsh", "fish"):
        from aotc.base.errors import EXIT_USAGE
        from aotc.cli.shell_completion import answer

        sys.stdout.write(answer(command, words, shell))
        # Never a yes: the variable may have leaked into a job that verifies.
        return EXIT_USAGE
    try:
        with command.make_context("aotc", words) as context:
            return int(command.invoke(context))
    except typer.Exit as done:
        return done.exit_code


def _fail(error: AotcError, words: list[str]) -> int:
    """Report an error where it can be read; returns its exit status."""
    from aotc.base.errors import AotcError
    from aotc.cli import terminal
    from aotc.cli.given import before_operands
    from aotc.cli.output import error_answer, error_lines, tables, write_document

    terminal.prepare()
    options = before_operands(words)
    if "--debug" in options or os.environ.get("AOTC_DEBUG", "") not in ("", "0"):
        import traceback

        # Indented, as a message may be of several lines.
        trace = traceback.format_exc().splitlines()
        with terminal.may_be_lost(sys.stderr):
            terminal.write_lines([f"  {line}" for line in trace], file=sys.stderr)
    lost: Exception | None = terminal.failure_of(sys.stdout)
    if "--json" in options and lost is None and error.where != terminal.STDOUT:
        try:
            write_document(error_answer(error))
        except (OSError, AotcError) as failed:
            lost = failed
        lost = terminal.failure_of(sys.stdout) or lost
        if lost is None or isinstance(lost, BrokenPipeError):
            return error.exit_status
    with terminal.may_be_lost(sys.stderr):
        lines = error_lines(error, terminal.terminal_width(sys.stderr))
        terminal.write_error(lines, sys.stderr)
        if shown := tables(error):
            terminal.write_lines([""], file=sys.stderr)
            terminal.show(shown, file=sys.stderr)
    return error.exit_status


def _unforeseen(error: Exception) -> AotcError:
    """The error that a command did not foresee, as a refusal; of an unknown kind AOTC-R999."""
    from aotc.base.errors import AotcError
    from aotc.base.files import failures
    from aotc.cli import terminal

    # What could not be written is still there, and fails again.
    is_of_a_stream = isinstance(error, OSError) and error.filename is None
    if is_of_a_stream and (lost := terminal.failure_of(sys.stdout)) is not None:
        return terminal.lost_answer(lost)
    if (refused := failures.uncaught_refusal(error)) is not None:
        return refused
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    return AotcError(
        "AOTC-R999",
        f"{type(error).__name__}: {error}",
        where=f"{os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}",  # noqa: PTH119
    )


# Ctrl-C, termination and a closed terminal: each ends a command in the same orderly way.


_IMPORTING = "<frozen importlib._bootstrap>"
# Between taking a lock that others wait for and noting it, an interrupt would leave it taken.
_LOCKING: Final = frozenset(("threading", "concurrent.futures._base", "concurrent.futures.thread"))
# But where they wait they may be broken off: functions, each with a local that it has by then.
_WAITING: Final = {
    "Condition.wait": "gotit",
    "Thread._wait_for_tstate_lock": "lock",  # Until Python 3.12.
    "Thread.join": "timeout",
}
# How long an interrupt is held back, in seconds; an import may itself be what never ends.
_LONGEST = 10.0
_STEP = 0.002
# What wakes the main thread: the system ignores it, and so does Python until it has a handler.
_WAKE: Final = signal.SIGURG


class Interrupts:
    """While entered, signals that end a command raise KeyboardInterrupt, so that it cleans up.

    Not amid an import, or amid what hands work to other threads: left halfway, that may keep a lock
    that another thread waits for, or a module half made. The interrupt is raised as soon as that is
    over.

    Python notes a signal, and looks for what it noted between two steps or when the system breaks
    off a call. Where the signal comes after the last look and before such a call, as that of a lock
    which another thread holds, nothing would come of it for as long as the call takes. So a thread
    hears of each signal, and breaks calls off until it was raised.
    """

    def __init__(self) -> None:
        self.seen = False
        self._entered = False
        # When the interrupt came that is still to be raised.
        self._held_since: float | None = None
        self._before: dict[int, Any] = {}
        self._caller = sys._getframe().f_code
        self._tells: int | None = None
        self._told_before = -1
        self._waking = _thread.allocate_lock()

    def __enter__(self) -> Interrupts:
        self._entered = True
        self._caller = sys._getframe(1).f_code
        # Other threads may set no handler.
        if threading.current_thread() is threading.main_thread():
            self._listen()
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
        # From now on a signal passes.
        self._entered = False
        if self._tells is not None:
            signal.set_wakeup_fd(self._told_before)
            os.close(self._tells)
            # Until the other thread has ended, which may be about to break off a call.
            self._waking.acquire()
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
        now = time.monotonic()
        if self._held_since is None:
            self._held_since = now
        self.seen = True
        self._raise(frame, now)

    def _again(self, number: int, frame: FrameType | None) -> None:
        if self._entered and self._held_since is not None:
            self._raise(frame, time.monotonic())

    def _raise(self, frame: FrameType | None, now: float) -> None:
        """Raise the interrupt, unless it is to be held back."""
        held = 0.0 if self._held_since is None else now - self._held_since
        if self._tells is not None and held < _LONGEST and self._has_to_end(frame):
            return
        self._held_since = None
        raise KeyboardInterrupt

    def _has_to_end(self, frame: FrameType | None) -> bool:
        """Whether the step that is under way may not be left halfway."""
        if (
            frame is not None
            and frame.f_globals.get("__name__") in _LOCKING
            and _WAITING.get(frame.f_code.co_qualname) not in frame.f_locals
        ):
            return True
        while frame is not None and frame.f_code is not self._caller:
            if frame.f_code.co_filename == _IMPORTING:
                return True
            frame = frame.f_back
        return False

    def _swallowed(self, unraisable: sys.UnraisableHookArgs) -> None:
        """An interrupt that fell into a callback of the interpreter's is given again."""
        if issubclass(unraisable.exc_type, KeyboardInterrupt) and self._tells is not None:
            self._held_since = time.monotonic()
            os.write(self._tells, bytes([signal.SIGTERM]))
        else:
            sys.__unraisablehook__(unraisable)

    def _listen(self) -> None:
        """Have a thread hear of signals; without one, an interrupt is never held back.

        A bare thread: `threading` takes locks, which the interrupted code may hold.
        """
        self._waking.acquire()
        try:
            told, self._tells = os.pipe()
        except OSError:
            return
        os.set_blocking(self._tells, False)
        self._before[_WAKE] = signal.signal(_WAKE, self._again)
        self._told_before = signal.set_wakeup_fd(self._tells, warn_on_full_buffer=False)
        try:
            _thread.start_new_thread(self._wake, (told,))
        except RuntimeError:
            signal.set_wakeup_fd(self._told_before)
            os.close(told)
            os.close(self._tells)
            self._tells = None

    def _wake(self, told: int) -> None:
        """Break off what the main thread waits for until each interrupt that came was raised."""
        main = threading.main_thread().ident
        assert main is not None
        while number := os.read(told, 1):
            if ord(number) == _WAKE or ord(number) not in self._before:
                continue
            while self._entered and (not self.seen or self._held_since is not None):
                time.sleep(_STEP)
                signal.pthread_kill(main, _WAKE)
        os.close(told)
        self._waking.release()


if __name__ == "__main__":
    sys.exit(main())
