"""Files that a command writes in addition to its answer."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from aotc.cli import streams
from aotc.files.failures import cannot_write
from aotc.files.replacing import check_output
from aotc.files.writing import is_written_through, write_atomically


def refuse_existing(paths: Iterable[Path], force: bool) -> None:
    """Raise AOTC-I017 where one of `paths` exists, unless `force`, and I026 where it may not be.

    A device or a pipe, such as /dev/stdout, is given on purpose: it is written to, not replaced.
    """
    for path in paths:
        try:
            through = is_written_through(path)
        except OSError as error:
            raise cannot_write(error, "cannot write the file", str(path)) from None
        check_output(path, force=force or through, writes_through=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, all of it or none; raises AOTC-I018 (full disk) and I026."""
    try:
        write_atomically(path, text.encode("utf-8"))
    except OSError as error:
        raise cannot_write(error, "cannot write the file", str(path)) from None


def write_output(text: str) -> None:
    """Write text to standard output; raises AOTC-I018 (full disk) and I026."""
    with streams.answering(sys.stdout):
        sys.stdout.write(text)
