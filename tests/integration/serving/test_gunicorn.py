"""The example of the guide "serve" under gunicorn, and what a fork inherits."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from running_server import EXAMPLE, HEALTHY, NOT_READY, serving

import aotc

pytest.importorskip("gunicorn")
HERE = Path(__file__).parent
BIND = ("--bind", "127.0.0.1:{port}")


def id_of(artifact: Path) -> str:
    return hashlib.sha256((artifact / "payload" / "aotc.json").read_bytes()).hexdigest()


@pytest.mark.parametrize("preload", [True, False], ids=["preload", "no preload"])
def test_the_example_loads_after_the_fork(artifacts, inputs, tmp_path: Path, preload: bool) -> None:
    pytest.importorskip("uvicorn_worker")
    pytest.importorskip("fastapi")
    settings = {"AOTC_ARTIFACT": str(artifacts.first), "AOTC_TRUST": str(artifacts.public_key)}
    with aotc.load(artifacts.first, key=artifacts.public_key, threads=1) as model:
        want = model.run({"x": inputs})["y"].tolist()
    conf = (EXAMPLE / "gunicorn.conf.py").read_text()
    assert "preload_app = True" in conf
    settled = tmp_path / "gunicorn.conf.py"
    settled.write_text(conf.replace("preload_app = True", f"preload_app = {preload}"))
    words = ("-c", str(settled), *BIND, "app:app")
    with serving(tmp_path, "gunicorn", *words, **settings) as server:
        server.wait_for_models(id_of(artifacts.first))
        for _ in range(20):
            found = server.ask("/predict", {"inputs": {"x": inputs.tolist()}})
            assert found == (HEALTHY, {"outputs": {"y": want}})
        assert len(server.said(r"Booting worker with pid: (\d+)")) == 2
        assert server.end() == 0


@pytest.mark.parametrize("preload", ["yes", "no"])
def test_a_hook_loads_after_the_fork(artifacts, tmp_path: Path, preload: str) -> None:
    settings = {"AOTC_ARTIFACT": str(artifacts.first), "AOTC_TRUST": str(artifacts.public_key)}
    with aotc.load(artifacts.first, key=artifacts.public_key, threads=1) as model:
        want = model.run({"x": np.ones((1, 16), np.float32)})["y"].tolist()
    words = ("-c", "wsgi.conf.py", *BIND, "wsgi_app:app")
    stated = {**settings, "LOAD": "in post_fork", "PRELOAD": preload}
    with serving(tmp_path, "gunicorn", *words, at=HERE, **stated) as server:
        server.wait(lambda: len(set(server.said(r"loaded by (\d+)"))) == 2)
        assert [server.ask("/") for _ in range(10)] == [(HEALTHY, want)] * 10
        assert server.end() == 0


def test_what_a_fork_inherits_is_refused(artifacts, tmp_path: Path) -> None:
    settings = {"AOTC_ARTIFACT": str(artifacts.first), "AOTC_TRUST": str(artifacts.public_key)}
    words = ("-c", "wsgi.conf.py", *BIND, "wsgi_app:app")
    stated = {**settings, "LOAD": "at import", "PRELOAD": "yes"}
    with serving(tmp_path, "gunicorn", *words, at=HERE, **stated) as server:
        server.wait(lambda: len(server.said("Booting worker")) == 2)
        for _ in range(10):
            status, found = server.ask("/")
            assert (status, found["code"]) == (NOT_READY, "AOTC-R026")
        assert server.end() == 0
