"""A process that shuts itself in: what it can no longer do, for good."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from repository import TOOLCHAIN

TRIES = """
import os, socket, sys
from pathlib import Path
from aotc.sources.sandbox import only_writing_in, without_network
own, other = Path(sys.argv[1]), Path(sys.argv[2])
port = int(sys.argv[3])
print("network", without_network())
print("shut in", only_writing_in(own))

def tries(name, call):
    try:
        call()
    except OSError:
        print(name, "no")
    else:
        print(name, "yes")

(own / "kept").write_text("1")
(own / "kept").rename(own / "moved")
Path(os.devnull).write_text("1")
import tempfile
with tempfile.TemporaryFile():
    pass
tries("connect", lambda: socket.create_connection(("127.0.0.1", port), 5))
tries("write", lambda: (other / "new").write_text("1"))
tries("overwrite", lambda: (other / "file").write_text("2"))
tries("truncate", lambda: os.truncate(other / "file", 0))
tries("remove", lambda: (other / "file").unlink())
tries("link", lambda: (other / "link").symlink_to("file"))
tries("folder", lambda: (other / "folder").mkdir())
tries("move", lambda: (own / "moved").rename(other / "moved"))
tries("read", lambda: (other / "file").read_text())
tries("signal", lambda: os.kill(os.getppid(), 0))
tries("program", lambda: os.execv("/bin/true", ["true"]))
"""
FORBIDDEN = ("write", "overwrite", "truncate", "remove", "link", "folder", "move", "program")


def test_what_is_left(tmp_path: Path) -> None:
    import socket

    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    (other / "file").write_text("1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        run = subprocess.run(
            [sys.executable, "-c", TRIES, own, other, str(server.getsockname()[1])],
            env={**os.environ, "PYTHONPATH": str(TOOLCHAIN)},
            capture_output=True,
            text=True,
            check=False,
        )
    said = dict(line.rsplit(" ", 1) for line in run.stdout.splitlines())
    assert said["network"] in ("none", "open"), run.stderr
    # What it says is what holds.
    assert said["connect"] == {"none": "no", "open": "yes"}[said["network"]]
    if said["shut in"] == "True":
        assert {said[name] for name in FORBIDDEN} == {"no"}, said
        assert said["read"] == "yes"
        release = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
        assert said["signal"] == ("no" if release >= (6, 12) else "yes")
        assert {path.name for path in other.iterdir()} == {"file"}
        assert (other / "file").read_text() == "1"
    missing = [
        name for name, good in (("network", "none"), ("shut in", "True")) if said[name] != good
    ]
    if missing:
        pytest.skip(f"the system grants no namespaces or no Landlock: {missing}")
