"""`-q`, `-v` and `--log-file`, which every command takes, and what they say of the call under way.

They stand here once: `Command` adds them to the parameters of each command, and takes them out
again before its function is called.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperOption

from aotc.records import record

if TYPE_CHECKING:
    from aotc.cli.call_log import CallLog

QUIET_OR_VERBOSE: Final = ("--quiet", "--verbose")
_PANEL: Final = "messages"


@record
class Verbosity:
    """How much a call tells on standard error, and the log that has all of it."""

    quiet: bool = False
    verbose: bool = False
    log: CallLog | None = None


class Outcome:
    """The exit status of a call, once it has one."""

    status: int | None = None


_current = Verbosity()


def current() -> Verbosity:
    """What the call under way asked for."""
    return _current


def options() -> list[TyperOption]:
    """The options, new for each command."""
    return [
        TyperOption(
            param_decls=["-q", "--quiet"],
            is_flag=True,
            default=False,
            help="tell no progress, only errors",
            rich_help_panel=_PANEL,
        ),
        TyperOption(
            param_decls=["-v", "--verbose"],
            is_flag=True,
            default=False,
            help="tell every step on standard error, with --json too",
            rich_help_panel=_PANEL,
        ),
        TyperOption(
            param_decls=["--log-file"],
            metavar="FILE",
            help="file to add every step and error to, with the time",
            rich_help_panel=_PANEL,
        ),
    ]


@contextmanager
def taken(
    parameters: MutableMapping[str, Any], called: str, words: Sequence[str]
) -> Iterator[Outcome]:
    """Take the options out of `parameters`, and have them hold for the call of `called`.

    `words` are those of the call, which the log begins with; it ends with the outcome.

    Raises AOTC-I018, I026 and I055 where the log cannot be written.
    """
    global _current
    quiet, verbose = bool(parameters.pop("quiet", False)), bool(parameters.pop("verbose", False))
    path = parameters.pop("log_file", None)
    log = None
    if path is not None:
        from aotc.cli.call_log import CallLog

        log = CallLog(Path(path))
    before, _current = _current, Verbosity(quiet=quiet, verbose=verbose, log=log)
    outcome = Outcome()
    try:
        with _timed(called, verbose), _logged(log, called, words, outcome):
            yield outcome
    finally:
        _current = before


@contextmanager
def _timed(called: str, verbose: bool) -> Iterator[None]:
    started = time.monotonic()
    yield
    if verbose:
        _tell_time(called, started)


def _tell_time(called: str, started: float) -> None:
    from aotc.cli import streams
    from aotc.cli.render import write_lines

    with streams.may_be_lost(sys.stderr):
        write_lines((f"{called}  {time.monotonic() - started:.1f} s",), file=sys.stderr)


@contextmanager
def _logged(
    log: CallLog | None, called: str, words: Sequence[str], outcome: Outcome
) -> Iterator[None]:
    if log is None:
        yield
        return
    import shlex

    from aotc.cli.refusal_output import error_lines
    from aotc.contract.versions import VERSION
    from aotc.errors import AotcError

    started = time.monotonic()
    log.write(f"aotc {VERSION}: {shlex.join([*called.split(), *words])}")
    ended = ""
    try:
        yield
    except AotcError as error:
        ended = f"exit status {error.exit_status}"
        for line in error_lines(error):
            log.write(line)
        raise
    except BaseException as error:
        ended = f"ended by {type(error).__name__}"
        raise
    finally:
        ended = ended or f"exit status {outcome.status}"
        log.write(f"{ended}  {time.monotonic() - started:.1f} s")
        log.close()
