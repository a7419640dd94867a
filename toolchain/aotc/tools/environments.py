"""Virtual environments that calls make and keep: where they are, and what makes them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_use
from aotc.base.files.folders import PRIVATE, cache_folder
from aotc.base.files.ownership import Unsafe, open_folder
from aotc.session.worker_pool import for_interpreter

PYTHON: Final = Path("bin") / "python"
"""The interpreter of an environment, in its folder."""
MAKE_SECONDS: Final = 1800.0
UNREACHED: Final = "Retry(total=0"
"""What pip says of an index that it cannot reach, before it says that nothing was found there."""
_SHOWN_LINES: Final = 4
# How lines of pip's and of uv's begin; the latter tells in causes what was missing.
_OF_ERRORS: Final = ("error", "cause:")


def environments_folder() -> Path:
    """The folder of environments, which only this user may change; raises AOTC-I191."""
    cache = cache_folder()
    if cache is None:
        raise AotcError("AOTC-I191", "this user has no home folder for environments")
    root = cache / "aotc" / "environments"
    try:
        os.close(open_folder(root, (os.geteuid(),), make=PRIVATE))
    except OSError as error:
        raise cannot_use(
            error, "the folder of environments", str(root), "AOTC-I191",
            when_full="the disk is full", further_fix="Or point XDG_CACHE_HOME elsewhere.",
        ) from None  # fmt: skip
    except Unsafe as error:
        raise error.refusal("AOTC-I191", "the folder of environments", "XDG_CACHE_HOME") from None
    return root


def run_program(arguments: list[str], where: str) -> str:
    """What a program prints; raises AOTC-I191, with the last of what it said of errors in `found`.

    Of pip that is without the warnings before it, but for one that an index cannot be reached.
    """
    try:
        ended = subprocess.run(
            arguments,
            env=for_interpreter(os.environ),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MAKE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise AotcError(
            "AOTC-I191",
            "the environment cannot be made",
            where=where,
            found=f"not done after {MAKE_SECONDS:g} s",
        ) from None
    if not ended.returncode:
        return ended.stdout
    said = [line.strip() for line in (ended.stderr or ended.stdout).splitlines() if line.strip()]
    errors = [e for e in said if e.lower().startswith(_OF_ERRORS) or UNREACHED in e] or said
    found = " | ".join(errors[-_SHOWN_LINES:])[:1000]
    raise AotcError("AOTC-I191", "the environment cannot be made", where=where, found=found)
