"""Where packing and unpacking write: beside the output first, so that it appears complete."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aotc.errors import AotcError
from aotc.files.failures import cannot_write


def check_output(place: Path, *, force: bool = False, mend: str = "") -> None:
    """Raise I017 where the output exists, unless `force`, and I026 where it cannot be written.

    A folder is never replaced.
    """
    try:
        if place.is_dir() or (not force and os.path.lexists(place)):
            raise AotcError("AOTC-I017", "the output exists", where=str(place), mend=mend)
        if not place.absolute().parent.is_dir():
            raise AotcError(
                "AOTC-I026", "the output's folder does not exist", where=str(place.parent)
            )
    except OSError as error:
        raise cannot_write(error, "cannot write the output", str(place)) from None


@contextmanager
def beside(place: Path) -> Iterator[Path]:
    """A new path beside the output; what is still there at the end is removed.

    An OSError within is one of writing: I018 where the disk is full, else I026.
    """
    draft = place.absolute().with_name(f".{place.name}.{secrets.token_hex(8)}")
    try:
        yield draft
    except OSError as error:
        raise cannot_write(error, "cannot write the output", str(place)) from None
    finally:
        if draft.is_dir():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink(missing_ok=True)
