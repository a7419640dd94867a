"""The page of BERT-base, and its comparison with another build of it: whole commands.

In seconds, as a reader waits for them; each sample is a fresh process.
"""

from __future__ import annotations

import subprocess
import time
from statistics import median

from benchmarks.fresh import AOTC, ROOT, environment
from benchmarks.result import Result, Row
from benchmarks.workshop import Workshop

ROUNDS = 7
# Seconds of a command, and bytes of a page.
LIMIT, LARGEST = 3.0, 2 << 20


def run(workshop: Workshop) -> Result:
    """Page, comparison and page of the comparison, in turn."""
    one, other = (str(workshop.artifact("bert", name)) for name in ("edge", "server-cpu"))
    page, compared = workshop.folder / "page.html", workshop.folder / "compared.html"
    commands = {
        "inspect --html": ["inspect", one, "--html", str(page)],
        "diff": ["diff", one, other],
        "diff --html": ["diff", one, other, "--html", str(compared)],
    }
    samples: dict[str, list[float]] = {name: [] for name in commands}
    for index in range(workshop.rounds(ROUNDS) + 1):
        workshop.progress(f"round {index}")
        for name, words in commands.items():
            started = time.perf_counter()
            subprocess.run(
                [str(AOTC), *words],
                cwd=ROOT,
                env=environment(None),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                check=True,
            )
            # The first round compiles byte code and fills caches.
            if index:
                samples[name].append(time.perf_counter() - started)
    rows = [
        Row(
            what=f"BERT-base, aotc {name}",
            asked=f"≤ {LIMIT:g} s",
            measured=f"{median(found):.2f} s",
            held=round(median(found), 2) <= LIMIT,
        )
        for name, found in samples.items()
    ]
    rows += [
        Row(
            what=f"BERT-base, page of {name}",
            asked=f"≤ {LARGEST >> 20} MiB",
            measured=f"{path.stat().st_size / 2**20:.2f} MiB",
            held=path.stat().st_size <= LARGEST,
        )
        for name, path in (("inspect", page), ("diff", compared))
    ]
    return Result(rows=tuple(rows), samples=samples)
