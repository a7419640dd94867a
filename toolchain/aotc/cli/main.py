"""The command line: the one place that turns errors into text and exit statuses.

The first word names a command, which is imported only then.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aotc.cli.interrupts import Interrupts

if TYPE_CHECKING:
    from aotc.errors import AotcError


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
            from aotc.errors import AotcError

            return _fail(AotcError("AOTC-I025", "the command was interrupted"), words)


def _run(words: list[str], interrupts: Interrupts) -> int:
    from aotc.cli import streams
    from aotc.cli.shown_warnings import escaped_warnings
    from aotc.errors import EXIT_NO, AotcError

    streams.prepare()
    try:
        with escaped_warnings():
            status = _dispatch([word for word in words if word != "--debug"])
            with streams.answering(sys.stdout):
                sys.stdout.flush()
            return status
    except BrokenPipeError:
        # The reader has gone; what is still buffered must not fail again at exit.
        streams.silence(sys.stdout)
        return EXIT_NO
    except Exception as error:
        # Whatever error follows on a signal is the interrupt: a native module whose loading is
        # interrupted raises ImportError.
        if interrupts.seen:
            raise KeyboardInterrupt from None
        return _fail(error if isinstance(error, AotcError) else _unforeseen(error), words)


def _dispatch(words: list[str]) -> int:
    import typer

    from aotc.cli.all_commands import all_commands
    from aotc.errors import EXIT_USAGE

    command = all_commands()
    if (shell := os.environ.get("_AOTC_COMPLETE")) in ("bash", "zsh", "fish"):
        from aotc.cli.grammar.completion import answer

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
    from aotc.cli import streams
    from aotc.cli.refusal_output import error_answer, error_lines, tables
    from aotc.cli.render import show, terminal_width, write_error, write_lines
    from aotc.errors import AotcError

    streams.prepare()
    if "--debug" in words or os.environ.get("AOTC_DEBUG", "") not in ("", "0"):
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
        write_error(error_lines(error, terminal_width(sys.stderr)), sys.stderr)
        if shown := tables(error):
            write_lines([""], file=sys.stderr)
            show(shown, file=sys.stderr)
    return error.exit_status


def _unforeseen(error: Exception) -> AotcError:
    from aotc.cli import streams
    from aotc.errors import AotcError
    from aotc.files import failures

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


if __name__ == "__main__":
    sys.exit(main())
