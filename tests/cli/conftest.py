"""The command, for every test that asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import Command


@pytest.fixture
def aotc(tmp_path: Path) -> Command:
    """The command in an empty folder."""
    return Command(tmp_path)
