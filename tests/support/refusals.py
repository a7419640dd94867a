"""The error with which a call refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aotc.base.errors import AotcError


def refusal(call: Callable[..., object], *arguments: Any, **options: Any) -> AotcError:
    """The error that `call(*arguments, **options)` raises; the test fails if it raises none."""
    with pytest.raises(AotcError) as caught:
        call(*arguments, **options)
    return caught.value


def refusal_code(call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """The code of that error."""
    return refusal(call, *arguments, **options).code
