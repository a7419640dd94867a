"""Sides of a comparison, each in its own process, called alternately.

OpenVINO exists twice, in its own package and in ONNX Runtime's plugin: one process would mix the
two copies.  Separate processes also share no threads or memory.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from benchmarks.fresh import ROOT, environment

# ONNX Runtime's threads spin for about 50 ms after a run, and would take a core from the next one.
PAUSE_SECONDS = 0.12

Arrays = Mapping[str, Any]
# When throughput is measured, the number of requests that a side gets in a row: few, because a
# machine's speed changes from second to second.
STREAM = 5

# Makes inputs from an argument, which is not timed; and the function that is called with them.
Call = tuple[Callable[[Any], Any], Callable[[Any], Arrays]]


@dataclass(frozen=True, slots=True)
class Spec:
    """`module:function` of this package; it takes `request` and returns a `Call`."""

    function: str
    request: Any


class Side:
    """A process that has prepared `spec` and waits for calls; a context manager."""

    def __init__(self, spec: Spec, store: Path | None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.sides", spec.function, json.dumps(spec.request)],
            cwd=ROOT,
            env=environment(store),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._spec = spec
        self._answer()

    def seconds(self, argument: Any) -> float:
        """The seconds of one call with `argument`, which is JSON-like."""
        return float(self._ask({"argument": argument}))

    def save(self, argument: Any, path: Path) -> None:
        """Call, and write the resulting arrays to `path` (.npz)."""
        self._ask({"argument": argument, "path": str(path)})

    def _ask(self, question: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._spec.function} ended with {self._process.wait()}")
        return json.loads(line)

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()


def by_turns(
    specs: Mapping[str, Spec],
    rounds: Sequence[Sequence[Any]],
    *,
    warm_up: int,
    store: Path | None = None,
    answers: Path | None = None,
    streams: bool = False,
) -> dict[str, list[float]]:
    """Seconds of each round, with all its arguments; sides alternate in random order.

    They alternate at each argument or, with `streams`, for throughput, after each `STREAM` of them,
    which a side gets in a row.
    The first `warm_up` rounds are not counted.  `answers` is a folder for the output of each side
    for the first argument, as SIDE.npz.
    """
    seconds: dict[str, list[float]] = {name: [] for name in specs}
    generator = random.Random(0)
    with ExitStack() as stack:
        sides = {name: stack.enter_context(Side(spec, store)) for name, spec in specs.items()}
        for name, side in sides.items():
            if answers is not None:
                answers.mkdir(parents=True, exist_ok=True)
                side.save(rounds[0][0], answers / f"{name}.npz")
        order = list(sides)
        for turn, arguments in enumerate(rounds):
            spent = dict.fromkeys(sides, 0.0)
            size = STREAM if streams else 1
            for block in (arguments[at : at + size] for at in range(0, len(arguments), size)):
                generator.shuffle(order)
                for name in order:
                    time.sleep(PAUSE_SECONDS)
                    spent[name] += sum(sides[name].seconds(argument) for argument in block)
            if turn >= warm_up:
                for name, total in spent.items():
                    seconds[name].append(total)
    return seconds


def answer_difference(folder: Path, first: str, second: str) -> float:
    """The maximum |difference| of two sides' outputs, as a share of the second's maximum value."""
    ours, theirs = (np.load(folder / f"{name}.npz") for name in (first, second))
    assert sorted(ours.files) == sorted(theirs.files), (ours.files, theirs.files)
    return max(
        float(np.abs(ours[name] - theirs[name]).max() / np.abs(theirs[name]).max())
        for name in ours.files
    )


def main() -> None:
    """Prepare what the command line names, then handle one call per line."""
    # Libraries print to standard output: only results may go into the pipe.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, _, name = sys.argv[1].partition(":")
    prepared: Call = getattr(import_module(f"benchmarks.{module}"), name)(json.loads(sys.argv[2]))
    draw, call = prepared
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        inputs = draw(question["argument"])
        started = time.perf_counter()
        found = call(inputs)
        seconds = time.perf_counter() - started
        if "path" in question:
            np.savez(question["path"], **found)
        print(json.dumps(seconds), file=answers, flush=True)


if __name__ == "__main__":
    main()
