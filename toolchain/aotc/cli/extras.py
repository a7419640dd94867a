"""Commands that need more than the base install say which extra to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aotc.errors import AotcError

_EXTRA_MODULES = ("onnx", "onnxruntime", "numpy", "google")


@contextmanager
def needs(command: str, extra: str) -> Iterator[None]:
    """Around imports: a package of an extra that is missing becomes AOTC-I019."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA_MODULES:
            raise
        raise AotcError(
            "AOTC-I019",
            f"'aotc {command}' needs the package {missing}",
            mend=f"pip install 'aotc[{extra}]'",
        ) from None
