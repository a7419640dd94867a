"""The tutorial shows the files that it runs, and its service answers as it says.

Its other commands are run by `test_page_examples.py`.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from documented_pages import Page
from example_place import SECONDS, Place
from output_matching import missing_lines
from repository import ROOT

PAGE = Page("docs/tutorial.md")  # "tutorial.md"
FILES = ("network.py", "int8.yaml", "compare.py", "app.py")
SHOWN = [block for block in PAGE.blocks if "run by" in block.notes]
BUILD = "aotc build examples/digits/digits.onnx --profile build/tutorial/int8.yaml"


def test_the_page_shows_the_files_that_it_runs() -> None:
    shown = [block.text for block in SHOWN if block.language != "sh"]
    assert shown == [(ROOT / "examples" / "tutorial" / name).read_text("utf-8") for name in FILES]


def test_the_service_answers_as_shown(tmp_path: Path) -> None:
    for module in ("fastapi", "uvicorn"):
        pytest.importorskip(module, reason=f"the tutorial is not served: there is no {module}")
    if shutil.which("curl") is None:
        pytest.skip("the tutorial's service is not asked: there is no curl")
    place = Place.new(tmp_path / "place")
    first, *_ = PAGE.examples
    for commands in (first.text, f"{BUILD} -o build/tutorial/int8.aotc"):
        subprocess.run(
            ("sh", "-euc", commands),
            **(where := {"cwd": place.clone, "env": place.environment()}),
            check=True,
            capture_output=True,
            timeout=SECONDS,
        )
    started, asked = (block.text for block in SHOWN if block.language == "sh")
    *_, replies = (block.text for block in PAGE.blocks if block.language == "text")
    command = next(line for line in started.splitlines() if line.startswith("uvicorn "))
    with served(command.split()[1:], place) as port:
        done = subprocess.run(
            (
                "sh",
                "-eu",
                "-c",
                re.sub(r"(curl -s \S+)", r"\1 -w '\\n'", asked.replace(":8000", f":{port}")),
            ),
            **where,
            check=True,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    assert not missing_lines(replies, done.stdout), done.stdout
    assert done.stdout.startswith('{"digit":1}\n')


@contextmanager
def served(arguments: list[str], place: Place) -> Iterator[int]:
    """uvicorn with these arguments on a free port, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = place.folder / "uvicorn.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", *arguments, "--port", str(port)],
            cwd=place.clone,
            env=place.environment(),
            stdout=out,
            stderr=out,
        )
    try:
        while not answers(port):
            assert server.poll() is None, log.read_text("utf-8")
            time.sleep(0.1)
        yield port
    finally:
        server.terminate()
        server.wait(SECONDS)


def answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/docs", timeout=SECONDS)
    except urllib.error.URLError:
        return False
    return True
