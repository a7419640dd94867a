"""Imports what a session needs in a separate thread, while a load hashes files.

Importing numpy and ONNX Runtime takes longer than verifying an artifact, and hashing releases the
interpreter's lock.
"""

from __future__ import annotations

import sys
from threading import Thread
from types import ModuleType

from aotc.errors import missing_package

_OPENING = "aotc.runtime.session_opening"


class EngineImports:
    """The imports of one load: call `begin` at any time, and `end` before creating a session."""

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._error: Exception | None = None

    def begin(self) -> None:
        """Import in another thread, once; does nothing if everything is imported already."""
        if self._thread is None and _OPENING not in sys.modules:
            self._thread = Thread(target=self._run, name="aotc-imports")
            self._thread.start()

    def end(self) -> ModuleType:
        """The module `aotc.runtime.session_opening`, once ONNX Runtime is imported as well.

        Raises AOTC-I019 if a package is not installed, and I020 if two that exclude each other are.
        """
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return _import()

    def _run(self) -> None:
        try:
            _import()
        except Exception as error:
            self._error = error


def _import() -> ModuleType:
    try:
        from aotc.backends.onnxruntime_import import import_onnxruntime

        import_onnxruntime()
        from aotc.runtime import session_opening
    except ModuleNotFoundError as error:
        raise missing_package(error, "aotc.load", only_loads=True) from None
    return session_opening
