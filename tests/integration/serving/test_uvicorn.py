"""The example of the guide "serve" under uvicorn with two workers, asked over HTTP."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running_server import HEALTHY, NOT_READY, Server, serving

import aotc
from aotc.trust.packing import pack

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

UNPROCESSABLE = 422
TOO_LARGE = 413


@contextmanager
def uvicorn(folder: Path, artifact: Path, key: Path, **settings: str) -> Iterator[Server]:
    """The example with two workers, which put their metrics together."""
    words = ("app:app", "--workers", "2", "--port", "{port}", "--no-access-log")
    shared = folder / "metrics"
    shared.mkdir()
    stated = {
        "AOTC_ARTIFACT": str(artifact),
        "AOTC_TRUST": str(key),
        "AOTC_NAME": "served",
        "PROMETHEUS_MULTIPROC_DIR": str(shared),
    }
    with serving(folder, "uvicorn", *words, **stated, **settings) as server:
        yield server


def answer_of(artifact: Path, key: Path, inputs: np.ndarray, store: Path) -> list[Any]:
    """What the library answers."""
    with aotc.load(artifact, key=key, threads=1, store=store) as model:
        found: list[Any] = model.run({"x": inputs})["y"].tolist()
    return found


def id_of(artifact: Path) -> str:
    return hashlib.sha256((artifact / "payload" / "aotc.json").read_bytes()).hexdigest()


def metrics_of(server: Server) -> dict[tuple[str, tuple[str, ...]], float]:
    """What a scrape of any worker tells of the model, by name and the values of other labels."""
    parser = pytest.importorskip("prometheus_client.parser")
    found = {}
    for family in parser.text_string_to_metric_families(server.ask("/metrics")[1]):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("model") == "served"
            found[sample.name, tuple(labels[name] for name in sorted(labels))] = sample.value
    return found


def link(place: Path, target: Path) -> None:
    """Let a link refer to something else, at once."""
    new = place.with_name(f"{place.name}.new")
    new.symlink_to(target)
    new.replace(place)


class Asked:
    """Requests of four threads without a pause: all their answers."""

    def __init__(self, server: Server, body: object) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.failed: list[Exception] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(server, body)) for _ in range(4)]

    def _ask(self, server: Server, body: object) -> None:
        while not self._stop.is_set():
            try:
                self.answers.append(server.ask("/predict", body))
            except Exception as error:
                self.failed.append(error)

    def __enter__(self) -> Asked:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def test_it_answers_as_the_library_does(artifacts, inputs, tmp_path: Path) -> None:
    want = answer_of(artifacts.first, artifacts.public_key, inputs, tmp_path / "other")
    body = {"inputs": {"x": inputs.tolist()}}
    with uvicorn(tmp_path, artifacts.first, artifacts.public_key, AOTC_BODY="5000") as server:
        server.wait_for_models(id_of(artifacts.first))
        assert server.ask("/healthz/live") == (HEALTHY, {"live": True})
        ready = {"ready": True, "artifact": id_of(artifacts.first)}
        assert server.ask("/healthz/ready") == (HEALTHY, ready)
        assert server.ask("/predict", body) == (HEALTHY, {"outputs": {"y": want}})
        # What is no number in JSON.
        status, found = server.ask("/predict", {"inputs": {"x": [[float("nan")] * 16]}})
        assert (status, found) == (HEALTHY, {"outputs": {"y": [[None] * 16]}})
        for wrong, code in (
            ({"inputs": {"z": [1]}}, "AOTC-R001"),
            ({"inputs": {"x": [["a"] * 16]}}, "AOTC-R002"),
            ({"inputs": {"x": [[1, 2], [3]]}}, "AOTC-R002"),
            ({"inputs": {"x": {"a": 1}}}, "AOTC-R002"),
            ({"inputs": {"x": None}}, "AOTC-R003"),
            ({"inputs": {"x": [1] * 16}}, "AOTC-R003"),
            ({"inputs": {"x": [[1] * 15]}}, "AOTC-R004"),
            ({"inputs": {"x": inputs.tolist()}, "outputs": ["z"]}, "AOTC-I027"),
        ):
            status, found = server.ask("/predict", wrong)
            assert (status, found["code"]) == (UNPROCESSABLE, code), wrong
            assert set(found) >= {"what", "fix"}
        assert server.ask("/predict", [1])[0] == UNPROCESSABLE
        assert server.ask("/predict", {"inputs": {"x": [[1] * 16] * 200}})[0] == TOO_LARGE
        for _ in range(10):
            counted = metrics_of(server)
            assert counted["aotc_models_ready", ()] == 2
            assert counted["aotc_loads_total", ()] == 2
            assert counted["aotc_refusals_total", ("AOTC-R001", "inputs")] == 1
            assert counted["aotc_calls_total", ("exact", "portable")] == 2
        assert server.end() == 0


def test_it_is_ready_only_once_it_has_a_model(artifacts, inputs, tmp_path: Path) -> None:
    place = tmp_path / "current.aotc"
    body = {"inputs": {"x": inputs.tolist()}}
    with uvicorn(tmp_path, place, artifacts.public_key) as server:
        server.wait(server.listens)
        server.wait(lambda: len(server.workers_that_said("no model answers")) == 2)
        status, found = server.ask("/healthz/ready")
        assert (status, found["ready"]) == (NOT_READY, False)
        assert found["refused"]["code"] == "AOTC-I001"
        assert server.ask("/predict", body) == (NOT_READY, {"ready": False})
        assert server.listens()
        link(place, artifacts.first)
        server.wait_for_models(id_of(artifacts.first))
        assert server.is_ready()
        assert server.ask("/predict", body)[0] == HEALTHY


@pytest.mark.parametrize("packed", [False, True], ids=["linked", "packed"])
def test_a_new_artifact_takes_its_place_and_a_bad_one_does_not(
    artifacts, inputs, tmp_path: Path, packed: bool
) -> None:
    key = artifacts.public_key
    old, new = (
        answer_of(each, key, inputs, tmp_path / "other")
        for each in (artifacts.first, artifacts.second)
    )
    assert old != new
    place = tmp_path / "current.aotc"
    bad = artifacts.damaged(tmp_path / "bad.aotc", packed=packed)

    def put(artifact: Path) -> None:
        if not packed:
            link(place, artifact)
            return
        pack(artifact, tmp_path / "next.zip")
        (tmp_path / "next.zip").replace(place)

    put(artifacts.first)
    with uvicorn(tmp_path, place, key) as server:
        server.wait_for_models(id_of(artifacts.first))
        with Asked(server, {"inputs": {"x": inputs.tolist()}}) as asked:
            bad.replace(place) if packed else link(place, bad)
            server.wait(lambda: len(server.workers_that_said("the model before answers on")) == 2)
            before = list(asked.answers)
            assert len(server.workers_that_said("refused: AOTC-G005 ")) == 2
            status, ready = server.ask("/healthz/ready")
            assert (status, ready["artifact"]) == (HEALTHY, id_of(artifacts.first))
            assert ready["refused"]["code"] == "AOTC-G005"
            put(artifacts.second)
            server.wait_for_models(id_of(artifacts.second))
            swapped = len(asked.answers)
        assert asked.failed == []
        assert before
        assert all(answer == (HEALTHY, {"outputs": {"y": old}}) for answer in before)
        both = [(HEALTHY, {"outputs": {"y": each}}) for each in (old, new)]
        assert all(answer in both for answer in asked.answers)
        # Four requests may have been on their way.
        later = asked.answers[swapped + 4 :]
        later += [server.ask("/predict", {"inputs": {"x": inputs.tolist()}}) for _ in range(20)]
        assert all(answer == both[1] for answer in later)
        ready = {"ready": True, "artifact": id_of(artifacts.second)}
        assert server.ask("/healthz/ready") == (HEALTHY, ready)
        counted = metrics_of(server)
        assert counted["aotc_models_ready", ()] == counted["aotc_models_loaded", ()] == 2
        assert counted["aotc_loads_total", ()] == 4
        assert counted["aotc_load_failures_total", ("AOTC-G005",)] == 2
        infos = {
            labels: value for (name, labels), value in counted.items() if name.endswith("info")
        }
        assert [labels[0] for labels, value in infos.items() if value] == [id_of(artifacts.second)]
        answered = counted["aotc_calls_total", ("exact", "portable")]
        assert answered == len(asked.answers) + 20
        assert server.end() == 0


def test_other_keys_are_asked_at_once(artifacts, tmp_path: Path) -> None:
    from aotc.trust import key_files

    key = tmp_path / "trusted.pub"
    shutil.copy(artifacts.public_key, key)
    _, other = key_files.generate(tmp_path / "other.pem")
    with uvicorn(tmp_path, artifacts.first, key) as server:
        server.wait_for_models(id_of(artifacts.first))
        other.replace(key)
        server.wait(lambda: len(server.workers_that_said("the model before answers on")) == 2)
        assert server.ask("/healthz/ready")[1]["refused"]["code"] == "AOTC-G002"


def test_what_was_taken_is_answered_before_it_ends(artifacts, inputs, tmp_path: Path) -> None:
    body = json.dumps({"inputs": {"x": inputs.tolist()}}).encode()
    head = (
        b"POST /predict HTTP/1.1\r\nHost: model\r\nContent-Type: application/json\r\n"
        b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    want = answer_of(artifacts.first, artifacts.public_key, inputs, tmp_path / "other")
    with uvicorn(tmp_path, artifacts.first, artifacts.public_key) as server:
        server.wait_for_models(id_of(artifacts.first))
        with socket.create_connection(("127.0.0.1", server.port)) as request:
            request.sendall(head)
            # A worker has taken it, and waits for its body.
            assert request.recv(65536).startswith(b"HTTP/1.1 100 ")
            server.process.terminate()
            server.wait(lambda: len(server.said("Shutting down")) == 2)
            request.sendall(body)
            answer = b""
            while part := request.recv(65536):
                answer += part
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"outputs": {"y": want}}
        assert server.process.wait(60) == 0
        assert len(server.said("Application shutdown complete")) == 2
