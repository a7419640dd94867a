"""What the recorder writes: shapes, limited, an even sample, whatever happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from repository import ROOT

from aotc.runtime.recorder import ShapeRecorder
from aotc.spec.traffic import read_traffic


def request(size: int) -> dict[str, object]:
    return {"ids": np.full((1, size), 424242), "words": ["secret"], "rate": 16000.0}


def test_shapes_and_nothing_else(tmp_path: Path) -> None:
    recorder = ShapeRecorder(tmp_path / "new" / "shapes.jsonl")
    for size in (3, 40):
        recorder.record(request(size))
    assert not recorder.path.exists(), "lines wait, so that a call need not"
    recorder.close()
    assert recorder.path.read_text() == '{"ids":[1,3]}\n{"ids":[1,40]}\n'
    assert recorder.lost == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_that_nobody_reads_keeps_no_request_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "shapes.jsonl")
    program = (
        "import sys, numpy; from aotc.runtime.recorder import ShapeRecorder; "
        "recorder = ShapeRecorder(sys.argv[1]); recorder.record({'ids': numpy.empty((1, 2))}); "
        "recorder.close(); print(recorder.lost)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "shapes.jsonl")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT / "toolchain")},
    )
    assert done.stdout == "1\n"
    assert (tmp_path / "shapes.jsonl").is_fifo()


def test_the_file_is_bounded_and_an_even_sample(tmp_path: Path) -> None:
    limit = 20_000
    recorder = ShapeRecorder(tmp_path / "shapes.jsonl", limit=limit)
    for index in range(40_000):
        recorder.record({"ids": np.empty((1, index + 1), bool)})
    recorder.close()
    assert 0 < recorder.path.stat().st_size <= limit
    sizes = [json.loads(line)["ids"][1] for line in recorder.path.read_text().splitlines()]
    assert sizes == sorted(sizes)
    steps = set(np.diff(sizes).tolist())
    assert len(steps) == 1, "each request had the same chance"
    assert steps.pop() >= 16
    assert min(sizes) < 2000
    assert max(sizes) > 38_000
    assert [path.name for path in tmp_path.iterdir()] == ["shapes.jsonl"]


def test_each_process_has_its_own_file(tmp_path: Path) -> None:
    recorder = ShapeRecorder(tmp_path / "shapes-{pid}.jsonl")
    assert recorder.path.name == f"shapes-{os.getpid()}.jsonl"


def test_a_file_goes_on(tmp_path: Path) -> None:
    for size in (3, 4):
        recorder = ShapeRecorder(tmp_path / "shapes.jsonl")
        recorder.record(request(size))
        recorder.close()
    assert read_traffic(tmp_path / "shapes.jsonl").requests == 2


def test_what_waits_is_written_when_the_interpreter_ends(tmp_path: Path) -> None:
    path = tmp_path / "shapes.jsonl"
    code = (
        "import sys, numpy\n"
        "from aotc.runtime.recorder import ShapeRecorder\n"
        "ShapeRecorder(sys.argv[1]).record({'ids': numpy.zeros((1, 3))})\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert path.read_text() == '{"ids":[1,3]}\n'


def test_a_call_that_outlives_the_model_is_recorded(tmp_path: Path) -> None:
    recorder = ShapeRecorder(tmp_path / "shapes.jsonl")
    recorder.close()
    recorder.record(request(3))
    recorder.record({"words": ["nothing of a known shape"]})
    assert recorder.path.read_text() == '{"ids":[1,3]}\n'


@pytest.mark.parametrize("place", ["a folder", "below a file"])
def test_a_request_never_fails_for_want_of_a_record(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path if place == "a folder" else tmp_path / "file" / "shapes.jsonl"
    recorder = ShapeRecorder(path)
    for _ in range(300):
        recorder.record(request(3))
    recorder.close()
    assert recorder.lost == 300


def test_threads_lose_no_line(tmp_path: Path) -> None:
    recorder = ShapeRecorder(tmp_path / "shapes.jsonl")

    def work(index: int) -> None:
        for _ in range(400):
            recorder.record(request(index + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    recorder.close()
    found = read_traffic(recorder.path)
    assert found.counts == {(1, index + 1): 400 for index in range(8)}
