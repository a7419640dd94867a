"""A host to attack, for every test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from policy_host import policy_host
from policy_setting import Setting


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    """One with a policy, without any record yet, and with a copy of an artifact to attack."""
    with policy_host(tmp_path, monkeypatch) as made:
        yield made
