"""From before the imports to the first answer, compared with a plain session on the original model.

Each sample is a fresh process that imports what it needs, loads, and answers once: an artifact from
this user's own store, which is verified again, and ONNX Runtime's session with its defaults, on the
model with its weights inline and external.  All files are in the page cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.byte_code import compile_packages
from benchmarks.fresh import ROOT, environment
from benchmarks.networks.external_weights import with_external_weights
from benchmarks.result import Result, Row, at_most, milliseconds, ratio_of_medians, unjudged
from benchmarks.workshop import Workshop

ASKED: Mapping[str, float] = {"resnet50": 1.0, "bert": 1.2}
ROUNDS = 15
EXTERNAL, INLINE, STORED = "plain, weights external", "plain, weights inline", "stored"
PROCESSES = ROOT / "benchmarks" / "processes"


def run(workshop: Workshop) -> Result:
    """Measure both plain sessions and the artifact alternately, with byte code compiled."""
    compile_packages("aotc")
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    for name, limit in ASKED.items():
        found = _measure(workshop, name)
        samples |= {f"{name} {what}": values for what, values in found.items()}
        rows += _rows(workshop.model(name).title, found, limit)
    return Result(rows=tuple(rows), samples=samples)


def _measure(workshop: Workshop, name: str) -> dict[str, list[float]]:
    from aotc.runtime.store.user_store import Store
    from aotc.trust.key_loading import load_public

    model = workshop.model(name)
    public = workshop.key()[1]
    artifact = workshop.artifact(name, "server-cpu")
    stored = Store(workshop.store).install(artifact, load_public(public))
    stored.hold.close()
    inputs = model.path.with_name("inputs.npz")
    np.savez(inputs, **model.inputs())  # type: ignore[arg-type]
    commands = {
        EXTERNAL: ["plain_session.py", str(with_external_weights(model.path)), str(inputs)],
        INLINE: ["plain_session.py", str(model.path), str(inputs)],
        STORED: ["stored_artifact.py", str(stored.folder.parent), str(inputs), str(public)],
    }
    found: dict[str, list[float]] = {}
    # Round 0 fills the page cache, and is not counted.
    for index in range(workshop.rounds(ROUNDS) + 1):
        workshop.progress(f"{model.title}, round {index}")
        for side, (program, *arguments) in commands.items():
            seconds = _timed(PROCESSES / program, arguments, workshop.store)
            for what, value in seconds.items() if index else ():
                found.setdefault(f"{side} {what}", []).append(value)
    return found


def _timed(program: Path, arguments: list[str], store: Path) -> dict[str, float]:
    """The output of a program that has nothing of this package on its path."""
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        cwd=store,
        env=environment(store),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


def _rows(title: str, found: Mapping[str, list[float]], limit: float) -> list[Row]:
    def took(side: str, *parts: str) -> str:
        shown = (f"{part} {milliseconds(median(found[f'{side} {part}']))}" for part in parts)
        return ", ".join(shown)

    def detail(side: str) -> str:
        ours, theirs = (median(found[f"{name} total"]) for name in (STORED, side))
        stored = took(STORED, "imports", "verify", "session", "warm-up", "run")
        plain = took(side, "imports", "session", "run")
        return f"{milliseconds(ours)} to {milliseconds(theirs)}; {stored}; plain: {plain}"

    def ratio(side: str, what: str) -> float:
        return ratio_of_medians(found[f"{STORED} {what}"], found[f"{side} {what}"])

    text = f"{title}: before the imports to the first answer"
    return [
        at_most(f"{text}, to a {EXTERNAL}", ratio(EXTERNAL, "total"), limit, detail(EXTERNAL)),
        at_most(f"{text}, to a {INLINE}", ratio(INLINE, "total"), limit, detail(INLINE)),
        unjudged(f"{text}, processor time to a {EXTERNAL}", ratio(EXTERNAL, "processor"), ""),
    ]
