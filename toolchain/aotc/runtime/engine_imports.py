"""What a session needs is imported by a thread of its own, while a load hashes files.

numpy and ONNX Runtime take longer to import than all that verifies, and hashing leaves the
interpreter to whoever imports.
"""

from __future__ import annotations

import sys
from threading import Thread
from types import ModuleType

from aotc.errors import missing_package

_OPENING = "aotc.runtime.session_opening"


class EngineImports:
    """The imports of one load: `begin` them at any time, and `end` before a session is made."""

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._error: Exception | None = None

    def begin(self) -> None:
        """Import in another thread, once; nothing where all is imported already."""
        if self._thread is None and _OPENING not in sys.modules:
            self._thread = Thread(target=self._run, name="aotc-imports")
            self._thread.start()

    def end(self) -> ModuleType:
        """The module `aotc.runtime.session_opening`, once ONNX Runtime is imported too.

        Raises AOTC-I019 where a package is not installed, and I020 where two are that exclude each
        other.
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
