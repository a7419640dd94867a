"""What a command costs beyond an empty Python, with byte code compiled."""

from __future__ import annotations

import compileall
import subprocess
import sys
import time
from statistics import median

from benchmarks.fresh import AOTC, ROOT
from benchmarks.result import Result, Row, milliseconds
from benchmarks.workshop import Workshop

ROUNDS = 31


def run(workshop: Workshop) -> Result:
    """By turns with `python -c pass`, whose median is subtracted."""
    artifact = str(workshop.artifact("squeezenet", "edge"))
    compileall.compile_dir(ROOT / "toolchain" / "aotc", quiet=1)
    empty = "python -c pass"
    commands = {
        empty: [sys.executable, "-c", "pass"],
        "aotc --help": [str(AOTC), "--help"],
        "aotc inspect": [str(AOTC), "inspect", artifact],
        "aotc verify": [str(AOTC), "verify", artifact, "--key", str(workshop.key()[1])],
    }
    limits = {"aotc --help": 0.2, "aotc inspect": 0.2, "aotc verify": 0.3}
    samples: dict[str, list[float]] = {name: [] for name in commands}
    for index in range(workshop.rounds(ROUNDS) + 1):
        if index % 10 == 0:
            workshop.progress(f"round {index}")
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
            )
            if index:
                samples[name].append(time.perf_counter() - started)
    floor = median(samples[empty])
    rows = []
    for name, limit in limits.items():
        beyond = median(samples[name]) - floor
        what = f"`{name}`" if name.endswith("help") else f"`{name}` on an artifact of 5 MB"
        rows.append(
            Row(
                what=f"{what}, beyond an empty Python",
                asked=f"≤ {limit * 1e3:.0f} ms",
                measured=f"{milliseconds(beyond)} (empty: {milliseconds(floor)})",
                held=beyond <= limit,
            )
        )
    return Result(rows=tuple(rows), samples=samples)
