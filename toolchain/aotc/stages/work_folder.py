"""Where a build works and writes: a folder beside the output, which is gone whatever happens."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aotc.errors import AotcError
from aotc.files.failures import cannot_write
from aotc.stages.package import refuse_output


def check_output(place: Path, force: bool) -> None:
    """Raise AOTC-I017 or I026 where the output cannot be written."""
    try:
        refuse_output(place, force)
        found = place.absolute().parent.is_dir()
    except OSError as error:
        raise AotcError(
            "AOTC-I026", f"cannot write the output: {error.strerror}", where=str(place)
        ) from None
    if not found:
        raise AotcError("AOTC-I026", "the output's folder does not exist", where=str(place.parent))


@contextmanager
def work_folder(place: Path) -> Iterator[Path]:
    """A folder beside the output, so that the last step is a rename; gone whatever happens."""
    try:
        work = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.absolute().parent))
    except OSError as error:
        raise cannot_write(error, "cannot write beside the output", str(place)) from None
    try:
        yield work
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise AotcError("AOTC-I018", "no space left", where=str(place)) from None
        raise
    finally:
        _remove(work)


def _remove(folder: Path) -> None:
    """Remove `folder`, however often that is interrupted."""
    interrupt: KeyboardInterrupt | None = None
    while True:
        try:
            shutil.rmtree(folder, ignore_errors=True)
            break
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
