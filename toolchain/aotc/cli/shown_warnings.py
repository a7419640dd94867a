"""Warnings of Python packages, as they may be shown: their text may be a model's."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def escaped_warnings() -> Iterator[None]:
    """Write each warning as one line on standard error, in which nothing steers the terminal."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        from aotc.cli.render import write_lines

        write_lines([f"{category.__name__}: {message}"], file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
