"""Files that a command writes in addition to its answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from aotc.cli import streams
from aotc.contract.artifact_names import stated_id
from aotc.errors import AotcError
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


def refuse_overwriting(
    outputs: Sequence[tuple[str, Path]], inputs: Iterable[Path | None] = ()
) -> None:
    """Raise AOTC-I027 where an output is, or lies in, one of `inputs` or another output.

    `outputs` are options and their files.  `-`, devices and pipes, which nothing is lost in, are
    left out, and so are inputs that are None, `-`, or an id of a store's entry.
    """
    files = [(option, path) for option, path in outputs if not _takes_all(path)]
    given = [path for path in inputs if path is not None and not _takes_all(path)]
    for index, (option, path) in enumerate(files):
        for other in given:
            if stated_id(other) is None and _is_within(path, other):
                raise _overwriting(option, path, "an input", str(other))
        for second, (name, other) in enumerate(files):
            if second != index and _is_within(path, other):
                raise _overwriting(option, path, "another output", f"{name} {other}")


def _takes_all(path: Path) -> bool:
    if str(path) == "-":
        return True
    try:
        return not path.is_dir() and is_written_through(path)
    except OSError:
        return False


def _is_within(path: Path, other: Path) -> bool:
    place, around = Path(os.path.realpath(path)), Path(os.path.realpath(other))
    try:
        # Also under another name, as links and the case of letters give.
        return place.is_relative_to(around) or place.samefile(around)
    except OSError:
        return False


def _overwriting(option: str, path: Path, what: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-I027",
        f"{option} would overwrite {what}, or write into it",
        where=f"{option} {path}",
        found=found,
        fix="Name another file.",
    )


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
