"""Libraries of custom operators at load: the artifact's own files, and copies of the host's.

A copy is hashed while it is made, so what is registered is what the artifact promises, whatever the
host's file holds by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read
from aotc.base.files.names import file_name
from aotc.base.files.work_folders import temporary_folder
from aotc.host.custom_op_libraries import (
    CANNOT_READ,
    NotALibrary,
    copy_library,
    stated_custom_ops,
)
from aotc.spec.variant import Variant


@contextmanager
def registrable(
    payload: Path | None, variants: Iterable[Variant], named: Sequence[Path] | None = None
) -> Iterator[Mapping[str, Path]]:
    """Files to register, by sha256, while sessions are made: once it is loaded, none is needed.

    `payload` is the folder of the artifact's files, None if nobody vouched for them, so that none
    of them may run; `named` are the host's (None or none: those of the environment).  Raises
    AOTC-C023 for one that is not at hand, and I001.
    """
    wanted = {each.sha256: each for one in variants for each in one.requirements.custom_ops}
    files = {
        digest: payload / each.path
        for digest, each in wanted.items()
        if payload is not None and each.path is not None
    }
    if len(files) == len(wanted):
        yield files
        return
    with temporary_folder("custom-ops") as folder:
        for index, path in enumerate(stated_custom_ops(named)):
            copy = folder / str(index) / file_name(path.name)
            copy.parent.mkdir()
            try:
                digest, _ = copy_library(path, copy)
            except OSError as error:
                raise cannot_read(error, CANNOT_READ, str(path)) from None
            except NotALibrary:
                continue
            files.setdefault(digest, copy)
        for digest, each in wanted.items():
            if digest not in files:
                raise AotcError(
                    "AOTC-C023",
                    "a library of custom operators is not at hand, or differs",
                    expected=f"{each.name} {digest[:16]}",
                    found="none named" if len(files) == 0 else "others",
                )
        yield files


def files_of(variant: Variant, files: Mapping[str, Path]) -> list[Path]:
    """Those of `files` that the sessions of `variant` register, in order."""
    return [files[each.sha256] for each in variant.requirements.custom_ops]
