"""Standard output and standard error as they may be: full, closed at the other end, or gone."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from aotc.errors import AotcError
from aotc.files import failures

STDOUT = "standard output"


def prepare() -> None:
    """Make standard streams ready for any text; what is written to a closed one is dropped."""
    _take_closed()
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # What the terminal's encoding cannot show is escaped, and never an error.
            reconfigure(errors="backslashreplace")


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


def failure_of(stream: TextIO) -> OSError | None:
    """The error that keeps a stream from being written, if any; from then on it drops all text."""
    try:
        stream.flush()
    except OSError as error:
        silence(stream)
        return error
    return None


def silence(stream: TextIO) -> None:
    """Drop what a stream still holds, so that it does not fail again at exit."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)


def unwritten(error: OSError) -> AotcError:
    """The AOTC-I018 or I026 of an answer that standard output does not accept."""
    refusal = failures.cannot_write(error, "cannot write the answer", STDOUT)
    refusal.fix = "Free space where standard output is directed, or direct it elsewhere."
    return refusal


@contextlib.contextmanager
def answering(stream: TextIO) -> Iterator[None]:
    """Around writes to a stream: a failure of standard output raises AOTC-I018 or I026.

    Text that could not be written is dropped, so that no later flush fails on it.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if stream is not sys.stdout:
            raise
        silence(stream)
        raise unwritten(error) from None


@contextlib.contextmanager
def may_be_lost(stream: TextIO) -> Iterator[None]:
    """Around writes whose loss is accepted, such as messages on standard error."""
    try:
        yield
        stream.flush()
    except OSError:
        silence(stream)
