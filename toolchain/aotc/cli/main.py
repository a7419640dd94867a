"""The command line: the one place that turns errors into text and exit statuses.

The first word names a command, which is imported only then.
"""

from __future__ import annotations

import _thread
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from aotc.cli.commands import COMMANDS, HELP
from aotc.cli.commands.base import Group
from aotc.contract.parsing import nearest
from aotc.contract.versions import VERSION
from aotc.errors import EXIT_NO, EXIT_USAGE, EXIT_YES, AotcError

_ABOUT = "Build, verify and run signed artifacts of ONNX models."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status.

    0 yes; 1 the answer is no; 2 usage; 3 the input must be mended; 70 our bug; 130 interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    # A caller may have closed them; what is said then goes nowhere.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    debug = os.environ.get("AOTC_DEBUG", "") not in ("", "0") or "--debug" in words
    words = [word for word in words if word != "--debug"]
    _survive_any_text()
    try:
        with _signals_as_interrupt():
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
    if words and words[0] in ("--version", "-V"):
        sys.stdout.write(f"aotc {VERSION}\n")
        return EXIT_YES
    if not _is_named(words, "aotc", _ABOUT, HELP):
        return EXIT_YES if words else EXIT_USAGE
    name, *rest = words
    command = COMMANDS.load(name)
    prog = f"aotc {name}"
    if isinstance(command, Group):
        rows = {each: text for each, (text, _) in command.commands.items()}
        if not _is_named(rest, prog, command.about, rows):
            return EXIT_YES if rest else EXIT_USAGE
        prog = f"{prog} {rest[0]}"
        command, rest = command.commands[rest[0]][1], rest[1:]
    parser = command.parser(prog)
    if "--help" in rest or "-h" in rest:
        sys.stdout.write(parser.format_help())
        return EXIT_YES
    return int(command.run(**parser.read(rest)))


def _is_named(words: list[str], prog: str, about: str, rows: Mapping[str, str]) -> bool:
    """Whether the first word names one of `rows`; where help is asked for, it is written.

    Raises AOTC-I027 on another word.
    """
    if not words or words[0] in ("--help", "-h"):
        width = max(len(name) for name in rows)
        listed = "".join(f"  {name:<{width}}  {text}\n" for name, text in rows.items())
        more = "  --version  print the version\n  --debug    print tracebacks\n"
        sys.stdout.write(
            f"usage: {prog} COMMAND ...\n\n{about}\n\ncommands:\n{listed}"
            + (f"\noptions:\n{more}" if prog == "aotc" else "")
            + f"\n'{prog} COMMAND --help' tells more.\n"
        )
        return False
    if words[0] not in rows:
        kind = "option" if words[0].startswith("-") else "command"
        close = nearest(words[0], tuple(rows))
        raise AotcError(
            "AOTC-I027",
            f"there is no {kind} {words[0]!r}" + (f"; did you mean {close!r}?" if close else ""),
            where=prog,
            mend=f"See '{prog} --help'.",
        )
    return True


def _fail(error: AotcError, words: list[str], debug: bool) -> int:
    from aotc.cli.failure import error_answer, error_lines, tables

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
        if shown := tables(error):
            from aotc.cli.render import show

            sys.stderr.write("\n")
            show(shown, file=sys.stderr)
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
