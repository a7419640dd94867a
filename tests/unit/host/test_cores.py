"""The default number of threads is ONNX Runtime's own; no thread is bound to a core."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from repository import ROOT

from aotc.host.cpu import cores_in, usable_cores
from aotc.session.sessions import create_session
from aotc.spec.variant import SessionSpec

MODEL = ROOT / "examples" / "digits" / "digits.onnx"


def cpuinfo(*cores: tuple[int, int]) -> str:
    """Text of /proc/cpuinfo: processors 0, 1, ... on (package, core)."""
    return "\n\n".join(
        f"processor\t: {number}\nphysical id\t: {package}\ncore id\t\t: {core}\nflags\t\t: avx"
        for number, (package, core) in enumerate(cores)
    )


@pytest.mark.parametrize(
    ("text", "allowed", "number"),
    [
        (cpuinfo((0, 0), (0, 1)), {0, 1}, 2),
        (cpuinfo((0, 0), (0, 1), (0, 0), (0, 1)), {0, 1, 2, 3}, 2),
        (cpuinfo((0, 0), (1, 0)), {0, 1}, 2),
        (cpuinfo((0, 0), (0, 1), (0, 2), (0, 3)), {1, 3}, 2),
        ("processor\t: 0\nFeatures\t: asimd\n\nprocessor\t: 1\nFeatures\t: asimd", {0, 1}, 2),
        ("", {0, 1, 2}, 3),
    ],
)
def test_cores_of_a_machine(text: str, allowed: set[int], number: int) -> None:
    assert cores_in(text, allowed) == number


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux alone ties threads")
def test_no_thread_of_a_session_is_tied_to_a_core() -> None:
    before = {path.name for path in Path("/proc/self/task").iterdir()}
    session = create_session(
        MODEL.read_bytes(), SessionSpec(optimization="all"), providers=["CPUExecutionProvider"]
    )
    made = [int(path.name) for path in Path("/proc/self/task").iterdir() if path.name not in before]
    assert len(made) == (usable_cores() or 1) - 1
    assert all(os.sched_getaffinity(thread) == os.sched_getaffinity(0) for thread in made)
    assert session.get_providers() == ["CPUExecutionProvider"]
