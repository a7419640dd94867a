"""Ctrl-C amid imports: of the command line's own first ones, and of one in two threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import TOOLCHAIN

# Interrupts itself where a certain module is looked for; then its command would run for long.
_AT_IMPORT = """
import os, signal, sys, time

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from aotc.cli.main import main

def load(self, name):
    from aotc.cli.grammar import Command, new_app
    app = new_app()
    app.command(cls=Command)(lambda: time.sleep(60))
    return app

import aotc.base.registry
aotc.base.registry.Registry.load = load
sys.exit(main(["explain"]))
"""

# One thread imports what takes a second; the main thread waits for it, and is interrupted.
_IN_TWO_THREADS = """
import _thread, sys, threading, time
from aotc.cli.main import Interrupts

def work():
    with Interrupts():
        threading.Thread(target=lambda: __import__("slow")).start()
        while "slow" not in sys.modules:
            time.sleep(0.001)
        threading.Timer(0.1, _thread.interrupt_main).start()
        import slow
        time.sleep(10)

try:
    work()
except KeyboardInterrupt:
    import slow
    print("interrupted", slow.DONE)
"""


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A process of its own, which ends in good time."""
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TOOLCHAIN)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(
    "module",
    [
        "aotc.cli.terminal",
        "aotc.base.errors",
        "typer",
        "typer.core",
        "aotc.cli.commands",
        "aotc.cli.grammar",
    ],
)
def test_an_interrupt_while_the_command_is_imported(module: str, tmp_path: Path) -> None:
    done = run(_AT_IMPORT.format(module=module), tmp_path)
    assert (done.returncode, done.stdout) == (130, ""), done
    assert done.stderr.startswith("error: AOTC-I025 interrupted\n"), done


def test_an_import_is_finished_before_the_interrupt(tmp_path: Path) -> None:
    """Nobody waits for ever for a lock that an interrupted import would have kept."""
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1)\nDONE = True\n")
    done = run("import sys; sys.path.insert(0, '')\n" + _IN_TWO_THREADS, tmp_path)
    assert (done.returncode, done.stdout) == (0, "interrupted True\n"), done


def test_an_import_that_never_ends_is_interrupted_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text("while True: pass\n")
    program = (
        "import _thread, sys, threading\n"
        "import aotc.cli.main as interrupts\n"
        "sys.path.insert(0, '')\n"
        "interrupts._LONGEST = 0.3\n"
        "def work():\n"
        "    with interrupts.Interrupts():\n"
        "        threading.Timer(0.1, _thread.interrupt_main).start()\n"
        "        import endless\n"
        "try: work()\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    done = run(program, tmp_path)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done


def test_a_held_interrupt_comes_once(tmp_path: Path) -> None:
    """A second would end the clean-up that the first began."""
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.4)\n")
    program = (
        "import _thread, sys, threading, time\n"
        "from aotc.cli.main import Interrupts\n"
        "sys.path.insert(0, '')\n"
        "def work():\n"
        "    with Interrupts():\n"
        "        threading.Timer(0.1, _thread.interrupt_main).start()\n"
        "        try: import slow; time.sleep(10)\n"
        "        finally:\n"
        "            for _ in range(20): time.sleep(0.005)\n"
        "            print('cleaned up')\n"
        "try: work()\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    done = run(program, tmp_path)
    assert (done.returncode, done.stdout) == (0, "cleaned up\ninterrupted\n"), done
