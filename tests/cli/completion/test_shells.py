"""What the Tab key does in real shells."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import SCRIPT, Command

# Of a key press, on a machine that does much else.
PATIENCE = 120


@pytest.fixture
def aotc(tmp_path: Path) -> Command:
    """The command on the path, in a folder with one file that paths complete to."""
    (tmp_path / "there-is-no-model.onnx").touch()
    path = os.pathsep.join((str(SCRIPT.parent), os.environ["PATH"]))
    return Command(tmp_path, {"PATH": path, "TERM": "xterm", "COLUMNS": "200"})


def installed(shell: str) -> str:
    """The shell's program; skips where there is none."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed here")
    return found


class Terminal:
    """A shell at a terminal, at which somebody types."""

    def __init__(self, words: list[str], aotc: Command) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            words,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=aotc.folder,
            env=aotc.environment(),
            start_new_session=True,
        )
        os.close(theirs)

    def types(self, keys: str, shows: str) -> None:
        """Press keys, and wait until the terminal shows a text."""
        os.write(self._ours, keys.encode())
        said = ""
        deadline = time.monotonic() + PATIENCE
        while shows not in said:
            assert time.monotonic() < deadline, (keys, shows, said)
            if select.select([self._ours], [], [], 1)[0]:
                said += os.read(self._ours, 1 << 16).decode("utf-8", "replace")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


@pytest.fixture(params=["bash", "zsh"])
def terminal(request: pytest.FixtureRequest, aotc: Command) -> Iterator[Terminal]:
    """A shell that has read the script, and nothing of its user's."""
    shell: str = request.param
    words = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}[shell]
    terminal = Terminal([installed(shell), *words], aotc)
    # Each answer differs from what is typed, as the terminal shows that too.
    if shell == "zsh":
        terminal.types("autoload -Uz compinit && compinit -u -D && echo re''ady\r", "ready")
    terminal.types(f"source <(aotc completion {shell}) && echo lo''aded\r", "loaded")
    yield terminal
    terminal.close()


@pytest.mark.parametrize(
    "steps",
    [
        # The call is made, so that the completed words are seen to be what the command takes.
        [("aotc expl\t", "explain"), ("G005\r", "digest mismatch")],
        [("aotc explain R99\t", "R999"), ("\r", "internal error")],
        [("aotc explain --li\t", "--list"), ("| tail -n 1\r", "AOTC-")],
        [
            ("aotc target sh\t", "show"),
            ("linux-x86-64-avx5\t", "avx512"),
            ("\r", "name: linux-x86"),
        ],
        [
            ("aotc build no.onnx --profi\t", "--profile"),
            ("server-cp\t", "server-cpu"),
            ("\r", "AOTC-I001"),
        ],
        [("aotc build no.onnx --target=linux-ar\t", "arm64"), ("\r", "AOTC-I001")],
        [("aotc completion fi\t", "fish"), ("\r", "complete --command aotc")],
        [("aotc inspect there-is\t", "there-is-no-model.onnx"), ("\r", "AOTC-I002")],
    ],
    ids=["command", "code", "option", "target", "profile", "after-equals", "choice", "path"],
)
def test_the_tab_key(terminal: Terminal, steps: list[tuple[str, str]]) -> None:
    for keys, shows in steps:
        terminal.types(keys, shows)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("aotc expl", ["explain\tExplain reason codes."]),
        ("aotc explain G005", ["G005\tdigest mismatch"]),
        ("aotc explain --li", ["--list\tlist every code"]),
        ("aotc target show linux-x86-64-avx5", ["linux-x86-64-avx512"]),
        (
            "aotc build m.onnx --profile server-",
            ["server-cpu", "server-cuda", "server-tensorrt"],
        ),
        ("aotc build m.onnx --target=linux-ar", ["--target=linux-arm64"]),
        ("aotc completion ", ["bash", "fish", "zsh"]),
        ("aotc inspect there-is", ["there-is-no-model.onnx"]),
    ],
)
def test_fish(typed: str, offered: list[str], aotc: Command) -> None:
    """Its own engine is asked what the Tab key would offer."""
    fish = installed("fish")
    program = "aotc completion fish | source; complete --do-complete $argv"
    done = subprocess.run(
        [fish, "--no-config", "-c", program, typed],
        cwd=aotc.folder,
        env=aotc.environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == offered
