"""Equal calls of a loaded model, alone and while other work takes the cores."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from aotc.runtime.model import Model
from aotc.session.parity import RepeatedAnswers

CALLERS = 2


@contextmanager
def busy_cores() -> Iterator[None]:
    """A process for each core that computes as long as the block runs."""
    program = [sys.executable, "-c", "while True: sum(range(1000))"]
    processes = [subprocess.Popen(program) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def alone(model: Model, inputs: Mapping[str, Any], runs: int) -> RepeatedAnswers:
    """`runs` further calls, one after another."""
    first = model.run(inputs)
    answers = RepeatedAnswers(list(first), list(first.values()))
    answers.repeat(lambda: list(model.run(inputs).values()), runs)
    return answers


def under_load(
    model: Model, inputs: Mapping[str, Any], runs: int, first: Mapping[str, Any]
) -> RepeatedAnswers:
    """`runs` calls by two threads at a time, compared with `first`, while the cores are busy."""
    answers = RepeatedAnswers(list(first), list(first.values()))
    with busy_cores(), ThreadPoolExecutor(CALLERS) as pool:
        for found in pool.map(lambda _: model.run(inputs), range(runs)):
            answers.add(list(found.values()))
    return answers
