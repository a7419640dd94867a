"""The example of the guide "serve" within this process: what is seen while a load is under way."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from running_server import EXAMPLE, HEALTHY, NOT_READY, SECONDS

import aotc

pytest.importorskip("fastapi")
testclient = pytest.importorskip("starlette.testclient")


class Gate:
    """`aotc.load`, each call of which waits until it is let through."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.through = threading.Semaphore(0)
        self.loaded: list[aotc.Model] = []

    def load(self, *arguments: Any, **options: Any) -> aotc.Model:
        self.begun.release()
        assert self.through.acquire(timeout=SECONDS)
        self.loaded.append(aotc.load(*arguments, **options))
        return self.loaded[-1]


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def place(artifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    link = tmp_path / "current.aotc"
    link.symlink_to(artifacts.first)
    monkeypatch.setenv("AOTC_ARTIFACT", str(link))
    monkeypatch.setenv("AOTC_TRUST", str(artifacts.public_key))
    monkeypatch.setenv("AOTC_STORE", str(tmp_path / "store"))
    return link


@contextmanager
def client(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """A client of the app, and the app's module."""
    spec = importlib.util.spec_from_file_location("served_example", EXAMPLE / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where records of the module look for their types.
    monkeypatch.setitem(sys.modules, "served_example", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LOOK", 0.01)

    class Door:
        """The library, with a gate before `load`."""

        load = staticmethod(gate.load)

        def __getattr__(self, name: str) -> Any:
            return getattr(aotc, name)

    monkeypatch.setattr(module, "aotc", Door())
    try:
        with testclient.TestClient(module.app) as found:
            yield found, module
    finally:
        module.metrics.close()


def eventually(condition: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_lives_and_is_not_ready_while_it_loads(
    place: Path, artifacts, inputs, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"inputs": {"x": inputs.tolist()}}
    with client(gate, monkeypatch) as (http, _):
        assert gate.begun.acquire(timeout=SECONDS)
        assert http.get("/healthz/live").status_code == HEALTHY
        assert http.get("/healthz/ready").status_code == NOT_READY
        refused = http.post("/predict", json=body)
        assert refused.status_code == NOT_READY
        assert refused.headers["Retry-After"] == "1"
        gate.through.release()
        eventually(lambda: http.get("/healthz/ready").status_code == HEALTHY)
        before = http.post("/predict", json=body).json()
        # Beside the one that answers.
        place.unlink()
        place.symlink_to(artifacts.second)
        assert gate.begun.acquire(timeout=SECONDS)
        assert http.get("/healthz/ready").status_code == HEALTHY
        assert http.post("/predict", json=body).json() == before
        gate.through.release()
        eventually(lambda: http.post("/predict", json=body).json() != before)
        old, new = gate.loaded
        eventually(lambda: not old.ready)
        assert new.ready
    assert not new.ready


def test_the_old_model_is_closed_after_its_last_call(
    place: Path, artifacts, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client(gate, monkeypatch) as (http, module):
        gate.through.release(2)
        eventually(lambda: http.get("/healthz/ready").status_code == HEALTHY)
        with module.served.model() as old:
            place.unlink()
            place.symlink_to(artifacts.second)
            eventually(lambda: len(gate.loaded) == 2)
            with module.served.model() as new:
                eventually(lambda: module.served._model is gate.loaded[1])
            assert old.ready
            old.run({"x": module.np.zeros((1, 16), "float32")})
        eventually(lambda: not old.ready)
        assert new in gate.loaded


def test_what_is_being_copied_is_loaded_once_it_is_whole(
    place: Path, artifacts, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.through.release(100)
    graph = next((artifacts.first / "payload").rglob("*.onnx")).relative_to(artifacts.first)
    place.unlink()
    shutil.copytree(artifacts.first, place, ignore=shutil.ignore_patterns("*.onnx"))
    with client(gate, monkeypatch) as (http, _):
        eventually(lambda: "refused" in http.get("/healthz/ready").json())
        found = http.get("/healthz/ready")
        assert (found.status_code, found.json()["refused"]["code"]) == (NOT_READY, "AOTC-G006")
        shutil.copy(artifacts.first / graph, place / graph)
        eventually(lambda: http.get("/healthz/ready").status_code == HEALTHY)
        assert "refused" not in http.get("/healthz/ready").json()


def test_it_sees_what_lies_at_a_path_without_reading_it(
    place: Path, artifacts, tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.through.release(100)
    with client(gate, monkeypatch) as (_, module):
        copy = Path(shutil.copytree(artifacts.first, tmp_path / "copy.aotc"))
        before = module.state_of(str(copy), str(tmp_path / "absent"))
        assert before == module.state_of(str(copy), None)
        assert len(before) == 1 + sum(path.is_file() for path in copy.rglob("*"))
        manifest = copy / "payload" / "aotc.json"
        # Equal bytes under the same name are another file.
        shutil.copy(manifest, tmp_path / "aotc.json")
        (tmp_path / "aotc.json").replace(manifest)
        assert module.state_of(str(copy)) != before
        place.unlink()
        assert module.state_of(str(place)) == []
