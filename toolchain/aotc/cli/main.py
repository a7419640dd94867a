"""The command line: the one place that turns errors into text and exit statuses.

The first word names a command, which is imported only then.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TextIO

from aotc.cli import streams
from aotc.errors import EXIT_NO, EXIT_YES, AotcError
from aotc.files import failures


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status.

    0 yes; 1 the answer is no; 2 usage; 3 the input must be mended; 70 our bug; 130 interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    # A caller may have closed them; what is said then goes nowhere.
    streams.take_closed()
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    debug = os.environ.get("AOTC_DEBUG", "") not in ("", "0") or "--debug" in words
    words = [word for word in words if word != "--debug"]
    _survive_any_text()
    try:
        with _signals_as_interrupt(), _escaped_warnings():
            status = _dispatch(words)
            with streams.answering(sys.stdout):
                sys.stdout.flush()
            return status
    except BrokenPipeError:
        # The reader has gone; what is still buffered must not fail again at exit.
        streams.silence(sys.stdout)
        return EXIT_NO
    except KeyboardInterrupt:
        return _fail(AotcError("AOTC-I025", "the command was interrupted"), words, debug)
    except AotcError as error:
        return _fail(error, words, debug)
    except Exception as error:
        return _fail(_unforeseen(error), words, debug)


def _dispatch(words: list[str]) -> int:
    import typer

    from aotc.cli.all_commands import all_commands

    command = all_commands()
    if shell := os.environ.get("_AOTC_COMPLETE"):
        from aotc.cli.grammar.completion import answer

        sys.stdout.write(answer(command, words, shell))
        return EXIT_YES
    try:
        with command.make_context("aotc", words) as context:
            return int(command.invoke(context))
    except typer.Exit as done:
        return done.exit_code


def _fail(error: AotcError, words: list[str], debug: bool) -> int:
    """Tell an error where it can be told; its exit status."""
    from aotc.cli.refusal_output import error_answer, error_lines, tables
    from aotc.cli.render import show, terminal_width, write_lines

    if debug:
        import traceback

        # Indented, as a message may be of several lines.
        trace = traceback.format_exc().splitlines()
        with streams.may_be_lost(sys.stderr):
            write_lines([f"  {line}" for line in trace], file=sys.stderr)
    lost: Exception | None = streams.failure_of(sys.stdout)
    if "--json" in words and lost is None and error.where != streams.STDOUT:
        from aotc.cli.json_document import write_document

        try:
            write_document(error_answer(error))
        except (OSError, AotcError) as failed:
            lost = failed
        lost = streams.failure_of(sys.stdout) or lost
        if lost is None or isinstance(lost, BrokenPipeError):
            return error.exit_status
    with streams.may_be_lost(sys.stderr):
        write_lines(error_lines(error, terminal_width(sys.stderr)), file=sys.stderr)
        if shown := tables(error):
            write_lines([""], file=sys.stderr)
            show(shown, file=sys.stderr)
    return error.exit_status


def _unforeseen(error: Exception) -> AotcError:
    if isinstance(error, OSError) and error.filename is None:
        # What could not be written is still there, and fails again.
        lost = streams.failure_of(sys.stdout)
        if lost is not None:
            return streams.unwritten(lost)
    refused = failures.uncaught_refusal(error)
    if refused is not None:
        return refused
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    return AotcError(
        "AOTC-R999",
        f"{type(error).__name__}: {error}",
        where=f"{os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}",  # noqa: PTH119
    )


def _survive_any_text() -> None:
    """What the terminal's encoding cannot show is escaped, and never an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def _escaped_warnings() -> Iterator[None]:
    """What a package warns of may be a model's text."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        from aotc.cli.render import write_lines

        write_lines([f"{category.__name__}: {message}"], file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


@contextlib.contextmanager
def _signals_as_interrupt() -> Iterator[None]:
    """A termination signal ends a command as Ctrl-C does, so that it cleans up.

    Whatever error follows on a signal is the interrupt: a native module whose import is
    interrupted raises ImportError.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    seen: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    def swallowed(unraisable: sys.UnraisableHookArgs) -> None:
        """An interrupt that fell into a callback of the interpreter's is given again."""
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(unraisable)
            return
        again = threading.Timer(0.01, _thread.interrupt_main, [seen[-1]] if seen else [])
        again.daemon = True
        again.start()

    sys.unraisablehook = swallowed
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, interrupt)}
    # A terminal that is closed; 'nohup' has commands ignore it.
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is signal.SIG_DFL:
        before[hangup] = signal.signal(hangup, interrupt)
    # Who starts a command in the background may have it ignore Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception:
        if seen:
            raise KeyboardInterrupt from None
        raise
    finally:
        sys.unraisablehook = sys.__unraisablehook__
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
