"""Starts of commands by turns with those of another revision: processor time and imported modules.

`python -m benchmarks.starts_against REVISION [--rounds 51]` prints a row for each command: modules
of the package and others that it imports there and here, and the ratio of medians of the processor
time (user and system) of the whole process.  Each round starts every command once of each side, in
alternating order; the revision runs twice in each, and the ratio of it to itself stands beside.
Each side reads the artifact that its own checkout keeps.
"""

from __future__ import annotations

import argparse
import compileall
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
_CALL = "import sys; from aotc.cli.main import main; sys.exit(main())"
_LOAD = (
    "import sys, aotc\n"
    "with aotc.load(sys.argv[1], key=sys.argv[2], store=sys.argv[3]) as model:\n"
    "    assert model.ready\n"
)
_LIST = (
    "import atexit, sys\n"
    "atexit.register(lambda: print('MODULES', *sys.modules, file=sys.__stderr__, flush=True))\n"
)


class Side:
    """A checkout: its toolchain, and the artifact that it keeps."""

    def __init__(self, root: Path, home: Path) -> None:
        (release,) = (root / "manifests" / "compat").iterdir()
        artifact, key = str(release / "digits.aotc"), str(release / "release.pub")
        self.environment = {
            **{name: value for name, value in os.environ.items() if name[:5] != "AOTC_"},
            "PYTHONPATH": str(root / "toolchain"),
            "HOME": str(home),
        }
        home.mkdir()
        compileall.compile_dir(root / "toolchain", quiet=2)
        self.commands = {
            "import aotc": ("import aotc", []),
            "aotc --help": (_CALL, ["--help"]),
            "aotc --version": (_CALL, ["--version"]),
            "aotc explain": (_CALL, ["explain", "AOTC-G005"]),
            "aotc verify --help": (_CALL, ["verify", "--help"]),
            "aotc inspect": (_CALL, ["inspect", artifact]),
            "aotc verify": (_CALL, ["verify", artifact, "--key", key]),
            "aotc profile show": (_CALL, ["profile", "show", "edge"]),
            "aotc target show": (_CALL, ["target", "show", "host"]),
            "aotc store list": (_CALL, ["store", "list"]),
            "aotc cache list": (_CALL, ["cache", "list"]),
            "aotc diff": (_CALL, ["diff", artifact, artifact]),
            "aotc run": (_CALL, ["run", artifact, "--key", key]),
            "aotc.load": (_LOAD, [artifact, key, str(home / "store")]),
        }

    def start(self, command: str, before: str = "") -> tuple[float, str]:
        """Processor seconds of one start, and what it wrote to standard error."""
        code, words = self.commands[command]
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", before + code, *words],
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            errors.seek(0)
            text = errors.read()
        # 1: this host is not one that the artifact is for.
        if process.returncode not in (0, 1):
            raise SystemExit(f"{command} ended with {process.returncode}: {text[-2000:]}")
        return usage.ru_utime + usage.ru_stime, text

    def modules(self, command: str) -> tuple[int, int]:
        """How many modules of the package, and others, a start imports."""
        names = self.start(command, _LIST)[1].rpartition("MODULES ")[2].split()
        own = sum(name == "aotc" or name.startswith("aotc.") for name in names)
        return own, len(names) - own


def main(arguments: list[str]) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision")
    parser.add_argument("--rounds", type=int, default=51)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "revision")
        archive = subprocess.run(
            ["git", "archive", options.revision], cwd=ROOT, check=True, stdout=subprocess.PIPE
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(root, filter="data")
        there, here = Side(root, Path(folder, "there")), Side(ROOT, Path(folder, "here"))
        print(f"| command | modules at {options.revision[:8]} | here | processor time | A/A |")
        print("|---|---|---|---|---|")
        for command in here.commands:
            counts = there.modules(command), here.modules(command)
            taken: tuple[list[float], list[float], list[float]] = ([], [], [])
            for number in range(options.rounds):
                order = (0, 1, 2) if number % 2 == 0 else (2, 1, 0)
                for which in order:
                    taken[which].append((there, here, there)[which].start(command)[0])
            first, mine, again = map(median, taken)
            cells = " | ".join(f"{own} + {other}" for own, other in counts)
            ratio = mine / median((first, again))
            print(f"| `{command}` | {cells} | {ratio:.3f} | {again / first:.3f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
