"""The cost of a command beyond that of an empty Python, with compiled byte code.

In starts of an empty Python, which say the same on a quick machine and a slow one; and in
milliseconds.

Measured in two environments: this one, with every extra, and a bare one, as on a host that only
verifies.  The bare one has no ONNX Runtime, so that a target is described to it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.byte_code import compile_packages
from benchmarks.fresh import ROOT
from benchmarks.result import Result, Row, milliseconds
from benchmarks.workshop import Workshop

ROUNDS = 31
# Of each command, in starts of an empty Python; and of all of them, in seconds.
STARTS = {
    "aotc --help": 10,
    "aotc explain": 12,
    "aotc inspect": 13,
    "aotc verify": 16,
    "aotc verify --trust": 16,
}
LIMIT = 0.2
EMPTY = "python -c pass"
EXTRAS, BARE = "all extras", "no extra"


def run(workshop: Workshop) -> Result:
    """Alternately with `python -c pass`, whose median is subtracted."""
    artifact = str(workshop.artifact("squeezenet", "edge"))
    public = str(workshop.key()[1])
    policy, target = _policy(workshop, public), _target(workshop)
    arguments = {
        "aotc --help": ["--help"],
        "aotc explain": ["explain", "AOTC-G005"],
        "aotc inspect": ["inspect", artifact],
        "aotc verify": ["verify", artifact, "--key", public],
        "aotc verify --trust": ["verify", artifact, "--trust", str(policy)],
    }
    samples: dict[str, list[float]] = {}
    for label, python in {EXTRAS: Path(sys.executable), BARE: _bare(workshop)}.items():
        aotc = str(python.with_name("aotc"))
        commands = {EMPTY: [str(python), "-c", "pass"]}
        there = [] if label == EXTRAS else ["--target", str(target)]
        commands |= {
            name: [aotc, *given, *(there if given[0] == "verify" else ())]
            for name, given in arguments.items()
        }
        for index in range(workshop.rounds(ROUNDS) + 1):
            if index % 10 == 0:
                workshop.progress(f"{label}, round {index}")
            for name, command in commands.items():
                seconds = _timed(command)
                if index:
                    samples.setdefault(f"{label} {name}", []).append(seconds)
    return Result(rows=tuple(_rows(samples)), samples=samples)


def _timed(command: list[str]) -> float:
    started = time.perf_counter()
    quiet = subprocess.DEVNULL
    subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, check=True)
    return time.perf_counter() - started


def _policy(workshop: Workshop, public: str) -> Path:
    """A policy that lets the benchmarks' key sign everything."""
    path = workshop.folder / "startup-trust.yaml"
    path.unlink(missing_ok=True)
    aotc = str(Path(sys.executable).with_name("aotc"))
    made = [aotc, "trust", "init", "--name", "benchmark", "--signer", f"release={public}"]
    made += ["--output", str(path)]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    return path


def _target(workshop: Workshop) -> Path:
    """The description of this host."""
    path = workshop.folder / "startup-target.yaml"
    aotc = str(Path(sys.executable).with_name("aotc"))
    done = subprocess.run([aotc, "target", "probe"], check=True, stdout=subprocess.PIPE, text=True)
    path.write_text(done.stdout)
    return path


def _bare(workshop: Workshop) -> Path:
    """The Python of an environment with aotc's own requirements, made only once."""
    compile_packages("aotc")
    folder = workshop.folder / "bare"
    python = folder / "bin" / "python"
    if not python.exists():
        workshop.progress("make an environment without extras")
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--editable", str(ROOT)], check=True)
    return python


def _rows(samples: dict[str, list[float]]) -> list[Row]:
    rows = []
    for label in (EXTRAS, BARE):
        floor = median(samples[f"{label} {EMPTY}"])
        for name, limit in STARTS.items():
            beyond = median(samples[f"{label} {name}"]) - floor
            starts = round(beyond / floor, 1)
            reads = name.split()[1] in ("inspect", "verify")
            what = f"`{name}` on an artifact of 5 MB" if reads else f"`{name}`"
            rows.append(
                Row(
                    what=f"{what}, beyond an empty Python, {label}",
                    asked=f"≤ {limit} starts, ≤ {LIMIT * 1e3:.0f} ms",
                    measured=f"{starts:.1f} starts, {milliseconds(beyond)} "
                    f"(empty: {milliseconds(floor)})",
                    held=starts <= limit and beyond <= LIMIT,
                )
            )
    return rows
