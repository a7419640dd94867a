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
    # What else is imported is imported in there, so that an interrupt may come early.
    with Interrupts() as interrupts:
        try:
            return _run(words, interrupts)
        except KeyboardInterrupt:
            interrupts.ignore()
            from aotc.base.errors import AotcError

            return _fail(AotcError("AOTC-I025", "the command was interrupted"), words)


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


if __name__ == "__main__":
    sys.exit(main())
