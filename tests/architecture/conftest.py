"""What all tests that read the sources share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _trees_are_no_garbage() -> Iterator[None]:
    """A million nodes of parsed sources, again and again looked through, cost most of the time."""
    gc.disable()
    yield
    gc.enable()
