"""The registries of the tests, and settings of no user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from referrers_registry import ReferrersRegistry, referrers_registry
from registries import Registry, docker_registry

from aotc.registry import connection, uploads


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Debian's, which has no referrers API."""
    with docker_registry(tmp_path_factory.mktemp("docker")) as registry:
        yield registry


@pytest.fixture
def ours() -> Iterator[ReferrersRegistry]:
    """That of the tests, which has it."""
    with referrers_registry() as registry:
        yield registry


@pytest.fixture(autouse=True)
def of_no_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("DOCKER_CONFIG", "DOCKER_AUTH_CONFIG", "AOTC_OCI_CA", "AOTC_OCI_PLAIN_HTTP"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """Nobody waits; what was asked for each time, None where it is ours to say."""
    found: list[float | None] = []

    def pause(attempt: int, asked: float | None = None) -> None:
        found.append(asked)

    for module in (connection, uploads):
        monkeypatch.setattr(module, "pause", pause)
    return found
