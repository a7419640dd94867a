"""Imports what a session needs in a separate thread, while a load hashes files.

Importing numpy and ONNX Runtime takes longer than verifying an artifact, and hashing releases the
interpreter's lock.  So does CUDA, which takes as long to make its context, in a thread of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from threading import Thread
from types import ModuleType

from aotc.contract.known_providers import CAPTURING
from aotc.contract.manifest.variant import Variant
from aotc.errors import missing_package

_OPENING = "aotc.runtime.session_opening"


class EngineImports:
    """The imports of one load: call `begin` at any time, and `end` before creating a session."""

    def __init__(self) -> None:
        self._threads: list[Thread] = []
        self._error: Exception | None = None

    def begin(
        self,
        variants: Sequence[Variant] = (),
        begin_device: Callable[[], object] | None = None,
        *,
        plugins: Collection[str] = (),
    ) -> None:
        """Import in another thread, once; does nothing if everything is imported already.

        `variants` are those that will be loaded: if CUDA runs one, its libraries are loaded as
        well, unless it is among the user's own `plugins`, and `begin_device` is called in a third
        thread if one captures graphs.  What fails there is tried again, and refused, where it is
        needed.
        """
        if self._threads or _OPENING in sys.modules:
            return
        name = CAPTURING.ort_name
        on_cuda = name not in plugins and any(name in variant.providers for variant in variants)
        if begin_device is not None and any(variant.graphs is not None for variant in variants):
            # First: imports would keep the interpreter from it.
            beside = Thread(target=_without_errors, args=(begin_device,), name="aotc-device")
            self._threads.append(beside)
        self._threads.append(Thread(target=self._run, args=(on_cuda,), name="aotc-imports"))
        for thread in self._threads:
            thread.start()

    def end(self) -> ModuleType:
        """The module `aotc.runtime.session_opening`, once ONNX Runtime is imported as well.

        Raises AOTC-I019 if a package is not installed, and I020 if two that exclude each other are.
        """
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error
        return _import()

    def _run(self, on_cuda: bool) -> None:
        try:
            _import()
        except Exception as error:
            self._error = error
            return
        if on_cuda:
            _without_errors(_load_libraries)


def _load_libraries() -> None:
    from aotc.engine.named_backends import library_of, prepare

    if library_of(CAPTURING.ort_name) is None:
        prepare(CAPTURING.ort_name)


def _without_errors(function: Callable[[], object]) -> None:
    with suppress(Exception):
        function()


def _import() -> ModuleType:
    try:
        # Before ONNX Runtime, which enters it by one of its parts: a thread that imports numpy at
        # that moment would find half of it.
        import numpy as np  # noqa: F401

        from aotc.backends.onnxruntime_import import import_onnxruntime

        import_onnxruntime()
        from aotc.runtime import session_opening
    except ModuleNotFoundError as error:
        raise missing_package(error, "aotc.load", only_loads=True) from None
    return session_opening
