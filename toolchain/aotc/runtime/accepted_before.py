"""Fixtures that matched in an earlier load by this user on this host.

A golden answer shows that this host computes what the build host computed.  That depends on the
artifact, on ONNX Runtime and numpy, on the processor, the kernel, the C library and the number of
threads.  While all of these are the same, running every fixture again shows nothing new.  What
matched is recorded beside the entries of this user's own store:

    <store>/accepted-<artifact id>.json    by variant: fixtures, and the sha256 of the conditions

Only runs of fixtures are saved.  Every load checks signatures, digests and the placement, and runs
one fixture of each variant.  Whoever can write the file can also change the store's entries.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final

from aotc.backends.onnxruntime_import import import_onnxruntime
from aotc.contract.codec.parsing import Json, ParseError, encode
from aotc.contract.codec.strict_json import strict_json
from aotc.contract.known_providers import CPU
from aotc.contract.manifest.variant import Variant
from aotc.contract.versions import VERSION
from aotc.files.ownership import can_check_owners
from aotc.host.cores import usable_cores
from aotc.host.probe import probe
from aotc.host.processor import processor_identity
from aotc.store.stored_entry import acceptance_path

_SCHEMA: Final = "aotc.accepted/1"
_MAX_BYTES: Final = 1 << 20
_READ: Final = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
# Variables of ONNX Runtime, of libraries that it may be built with, and of the dynamic linker.
_VARIABLES: Final = ("ORT_", "MLAS_", "OMP_", "KMP_", "MKL_", "LD_", "GLIBC_TUNABLES")


class AcceptedBefore:
    """What is recorded about the artifact `artifact_id` in the store `root`.

    `threads` is the number per operator that the load asked for (None: the variant's, or one per
    core).  A record that cannot be read, or that others could have written, is ignored; one that
    cannot be written is lost.
    """

    def __init__(self, root: Path, artifact_id: str, threads: int | None = None) -> None:
        self._path = acceptance_path(root, artifact_id)
        self._threads = threads

    def covers(self, variant: Variant, fixtures: Collection[str]) -> bool:
        """Whether all these fixtures of a variant matched under the conditions of this load."""
        conditions = self._conditions(variant)
        if conditions is None:
            return False
        kept = self._kept().get(variant.name)
        return (
            isinstance(kept, dict)
            and kept.get("conditions") == conditions
            and isinstance(known := kept.get("fixtures"), list)
            and all(name in known for name in fixtures)
        )

    def record(self, variant: Variant, fixtures: Collection[str]) -> None:
        """Record that these fixtures of a variant ran in this load, and matched."""
        conditions = self._conditions(variant)
        if conditions is None:
            return
        from aotc.files.writing import write_atomically

        entry: Json = {"conditions": conditions, "fixtures": sorted(fixtures)}
        kept = {**self._kept(), variant.name: entry}
        document = json.dumps({"schema": _SCHEMA, "variants": kept}, sort_keys=True)
        try:
            if self._path.parent.stat().st_uid == os.geteuid():
                self._make_room()
                write_atomically(self._path, document.encode(), mode=0o600)
        except OSError:
            return

    def _make_room(self) -> None:
        """Remove a file of this name that `_own_bytes` refuses; raises OSError."""
        try:
            _own_bytes(self._path)
        except FileNotFoundError:
            return
        except OSError:
            self._path.unlink()

    def _kept(self) -> dict[str, Json]:
        """The records by variant; empty if there is no usable file."""
        try:
            document = strict_json(_own_bytes(self._path))
        except (OSError, ParseError):
            return {}
        if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
            return {}
        variants = document.get("variants")
        return variants if isinstance(variants, dict) else {}

    def _conditions(self, variant: Variant) -> str | None:
        """The sha256 of everything but the artifact that answers depend on; None if unknown.

        It is known for the CPU provider alone: others depend on drivers and devices as well.  It is
        unknown if ONNX Runtime's library is no longer where it was loaded from.
        """
        processors = processor_identity()
        if variant.providers != (CPU,) or not processors or not can_check_owners():
            return None
        import numpy as np

        try:
            runtime = _onnxruntime()
        except OSError:
            return None
        threads = variant.session.threads if self._threads is None else self._threads
        known = {
            "aotc": VERSION,
            "numpy": np.__version__,
            "onnxruntime": runtime,
            "processors": processors,
            "system": list(os.uname())[2:],
            "libc": encode(probe(gpus=False).libc),
            "threads": usable_cores() if threads is None else threads,
            "variables": {
                name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)
            },
        }
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def _onnxruntime() -> list[object]:
    """Version and build of ONNX Runtime, and the state of the library that is loaded."""
    runtime = import_onnxruntime()
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    library = Path(native.__file__).stat()
    # Unlike the modification time, the change time cannot be set.
    state = [library.st_size, library.st_mtime_ns, library.st_ctime_ns]
    return [runtime.__version__, runtime.get_build_info(), *state]


def _own_bytes(path: Path) -> bytes:
    """The bytes of a small, plain file that only this user can write; raises OSError."""
    descriptor = os.open(path, _READ)
    try:
        found = os.fstat(descriptor)
        plain = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
        if not plain or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise PermissionError(str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(_MAX_BYTES)
    finally:
        os.close(descriptor)
