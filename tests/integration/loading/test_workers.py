"""Servers with several workers: one truth in their metrics, and no model from before a fork."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from built_artifact import BuiltArtifact
from repository import ROOT, TOOLCHAIN

pytest.importorskip("prometheus_client")

SECONDS = 120
WORKERS, SCRAPES, CALLS = 2, 10, 40

CONFIGURATION = """
from prometheus_client import multiprocess

def child_exit(server, worker):
    multiprocess.mark_process_dead(worker.pid)
"""


@contextmanager
def served(
    server: str, folder: Path, digits: BuiltArtifact, *words: str, **environment: str
) -> Iterator[str]:
    """The address of an application with two workers, whose metrics share a folder."""
    pytest.importorskip(server)
    shared = folder / "metrics"
    shared.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = {
        "gunicorn": ["--bind", f"127.0.0.1:{port}", "--workers", str(WORKERS), "served_app:wsgi"],
        "uvicorn": ["--port", str(port), "--workers", str(WORKERS), "served_app:asgi"],
    }[server]
    path = os.pathsep.join(map(str, (TOOLCHAIN, ROOT / "tests" / "support")))
    told = {
        "PYTHONPATH": path,
        "PROMETHEUS_MULTIPROC_DIR": str(shared),
        "SERVED_ARTIFACT": str(digits.path),
        "SERVED_KEY": str(digits.public_key),
        **environment,
    }
    log = (folder / "log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", server, *words, *command],
        cwd=folder,
        env={**os.environ, **told},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(address, process, folder / "log")
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)
        log.close()


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            get(f"{address}/metrics")
        except OSError:
            time.sleep(0.1)
        else:
            return
    pytest.fail(f"the server does not answer:\n{log.read_text()}")


def get(address: str) -> str:
    # Without a proxy, and each on a connection of its own, which any worker may take.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=SECONDS) as answer:
        text: str = answer.read().decode()
    return text


def scraped(address: str) -> Counter[str]:
    """The sum of each metric's samples that count, over labels."""
    from prometheus_client.parser import text_string_to_metric_families

    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(get(f"{address}/metrics")):
        for sample in family.samples:
            if sample.labels.get("le", "+Inf") == "+Inf":
                found[sample.name] += int(sample.value)
    return found


def call(address: str, times: int) -> Counter[str]:
    """Make calls side by side; how many each process answered."""
    with ThreadPoolExecutor(4) as pool:
        return Counter(pool.map(lambda _: get(f"{address}/"), range(times)))


def call_until_all_serve(address: str) -> Counter[str]:
    answered: Counter[str] = Counter()
    deadline = time.monotonic() + SECONDS
    while len(answered) < WORKERS and time.monotonic() < deadline:
        answered += call(address, 8)
    assert len(answered) == WORKERS
    return answered


COUNTED = (
    "aotc_calls_total",
    "aotc_call_duration_seconds_count",
    "aotc_call_duration_seconds_bucket",
)


@pytest.mark.parametrize("server", ["gunicorn", "uvicorn"])
def test_two_workers_scraped_ten_times_give_one_truth(
    server: str, tmp_path: Path, digits: BuiltArtifact
) -> None:
    with served(server, tmp_path, digits) as address:
        answered = call_until_all_serve(address)
        for _ in range(SCRAPES):
            answered += call(address, CALLS)
            found = scraped(address)
            assert [found[name] for name in COUNTED] == [answered.total()] * 3
            assert found["aotc_input_elements_total"] == 64 * answered.total()
            assert found["aotc_loads_total"] == WORKERS
            assert found["aotc_models_loaded"] == found["aotc_models_ready"] == WORKERS
            assert found["aotc_model_info"] == 1
        seen = [scraped(address)]
        calling = threading.Thread(target=call, args=(address, SCRAPES * CALLS))
        calling.start()
        # While calls are made, no scrape takes back what one before it said.
        while calling.is_alive() or len(seen) <= SCRAPES:
            seen.append(scraped(address))
        calling.join()
        seen.append(scraped(address))
    for name in COUNTED:
        counts = [each[name] for each in seen]
        assert counts == sorted(counts)
        assert counts[-1] == answered.total() + SCRAPES * CALLS


def test_what_a_dead_worker_counted_stays(tmp_path: Path, digits: BuiltArtifact) -> None:
    configuration = tmp_path / "gunicorn.conf.py"
    configuration.write_text(CONFIGURATION)
    with served("gunicorn", tmp_path, digits, "--config", str(configuration)) as address:
        answered = call_until_all_serve(address)
        os.kill(int(next(iter(answered))), signal.SIGTERM)
        deadline = time.monotonic() + SECONDS
        while len(answered) <= WORKERS and time.monotonic() < deadline:
            answered += call(address, 8)
        found = scraped(address)
    assert len(answered) == WORKERS + 1
    assert found["aotc_calls_total"] == answered.total()
    assert found["aotc_loads_total"] == WORKERS + 1
    assert found["aotc_models_ready"] == WORKERS


def test_workers_of_a_preloaded_application_load_their_own(
    tmp_path: Path, digits: BuiltArtifact
) -> None:
    with served("gunicorn", tmp_path, digits, "--preload", PRELOAD="1") as address:
        for _ in range(8):
            refused = get(f"{address}/inherited")
            assert refused.startswith("AOTC-R026 Call aotc.load in the child, after the fork")
            assert "gunicorn in the hook post_fork" in refused
        answered = call_until_all_serve(address)
        found = scraped(address)
    assert found["aotc_calls_total"] == answered.total()
    # That of the parent, which loaded one as well, and serves no call.
    assert found["aotc_loads_total"] == found["aotc_models_ready"] == WORKERS + 1


def test_what_is_only_imported_before_the_fork_serves_after_it(
    tmp_path: Path, digits: BuiltArtifact
) -> None:
    with served("gunicorn", tmp_path, digits, "--preload") as address:
        answered = call_until_all_serve(address)
        found = scraped(address)
    assert found["aotc_calls_total"] == answered.total()
    assert found["aotc_loads_total"] == found["aotc_models_ready"] == WORKERS
