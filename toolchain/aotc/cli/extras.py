"""Commands that need more than the base install say which extra to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aotc.errors import missing_package


@contextmanager
def needs(command: str, extra: str = "cpu", *, loads: bool = False) -> Iterator[None]:
    """Around imports: a package of an extra that is missing becomes AOTC-I019.

    A command that only `loads` and runs needs no more than ONNX Runtime.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_package(error, f"'aotc {command}'", extra, only_loads=loads) from None
