"""The command line: the one place that turns errors into text and exit statuses.

The first word names a command, which is imported only then; its arguments are typer's.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from aotc.cli.commands import COMMANDS, HELP
from aotc.contract.parsing import nearest
from aotc.contract.versions import VERSION
from aotc.errors import EXIT_NO, EXIT_USAGE, EXIT_YES, AotcError

_ABOUT = "Build, verify and run signed artifacts of ONNX models."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status.

    0 yes; 1 the answer is no; 2 usage; 3 the input must be mended; 70 our bug; 130 interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = os.environ.get("AOTC_DEBUG", "") not in ("", "0") or "--debug" in words
    words = [word for word in words if word != "--debug"]
    _survive_any_text()
    try:
        with _termination_as_interrupt():
            status = _dispatch(words)
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        # The reader has gone; what is still buffered must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_NO
    except KeyboardInterrupt:
        return _fail(AotcError("AOTC-I025", "the command was interrupted"), words, debug)
    except AotcError as error:
        return _fail(error, words, debug)
    except Exception as error:
        return _fail(_unforeseen(error), words, debug)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h", "help"):
        sys.stdout.write(_help())
        return EXIT_YES if words else EXIT_USAGE
    if words[0] in ("--version", "-V"):
        sys.stdout.write(f"aotc {VERSION}\n")
        return EXIT_YES
    name = words[0]
    if name not in COMMANDS:
        kind = "option" if name.startswith("-") else "command"
        close = nearest(name, COMMANDS.names())
        raise AotcError(
            "AOTC-I027",
            f"there is no {kind} {name!r}" + (f"; did you mean {close!r}?" if close else ""),
            mend="See 'aotc --help'.",
        )
    return _invoke(name, words[1:])


def _invoke(name: str, words: list[str]) -> int:
    import typer.main

    command = typer.main.get_command(COMMANDS.load(name))
    command.help = command.help or HELP[name]
    # The base of every usage error, wherever this release of typer keeps it.
    usage_error: type[Any] = typer.BadParameter.__mro__[1]
    try:
        with command.make_context(f"aotc {name}", words) as context:
            status = command.invoke(context)
    except typer.Exit as exit_:
        return exit_.exit_code
    except usage_error as error:
        where = getattr(getattr(error, "ctx", None), "command_path", f"aotc {name}")
        raise AotcError(
            "AOTC-I027",
            error.format_message().rstrip("."),
            where=where,
            mend=f"See '{where} --help'.",
        ) from None
    return status if isinstance(status, int) else EXIT_YES


def _help() -> str:
    width = max(len(name) for name in HELP)
    rows = "".join(f"  {name:<{width}}  {text}\n" for name, text in HELP.items())
    return (
        f"Usage: aotc [--version] [--debug] COMMAND [ARGS]...\n\n  {_ABOUT}\n\n"
        f"Commands:\n{rows}\n'aotc COMMAND --help' tells more of each.\n"
    )


def _fail(error: AotcError, words: list[str], debug: bool) -> int:
    from aotc.cli.failure import error_answer, error_lines

    if debug:
        import traceback

        traceback.print_exc()
    if "--json" in words:
        from aotc.cli.document import write_document

        write_document(error_answer(error))
        sys.stdout.flush()
    else:
        sys.stdout.flush()
        sys.stderr.write("\n".join(error_lines(error)) + "\n")
    return error.exit_status


def _unforeseen(error: Exception) -> AotcError:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return AotcError(
            "AOTC-I018", "no space left on the device", where=str(error.filename or "")
        )
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


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """A termination signal ends a command as Ctrl-C does, so that it cleans up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
