"""Ranges for half precision are observed on several inputs at once, where cores are many."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_parts import info, node
from openvino_models import model_of, weight

from aotc.base.errors import AotcError
from aotc.graph import values
from aotc.pipeline import half
from aotc.session.inference import with_types
from aotc.spec.codec import encode
from aotc.spec.payload import Value

ROWS = (1, 3, 2, 4)


def request(folder: Path, samples: tuple[int, ...] = ()) -> dict[str, Any]:
    """Inputs of so many rows, whose largest number is 1 more than their rows; and samples.

    One of no columns does not run.
    """
    references = []
    for rows in (*ROWS, *samples):
        path = folder / f"{rows}.npy"
        columns = 32 if rows else 0
        values.save(np.full((max(rows, 1), columns), rows + 1, np.float32), path)
        sizes = {"n": max(rows, 1)}
        references.append(
            {"inputs": {"x": path}, "sizes": sizes, "wanted": sizes, "sample": rows in samples}
        )
    return {
        "inputs": [encode(Value(name="x", dtype="float32", shape=("n", 32)))],
        "padding": None,
        "references": references,
        "weights": str(folder),
        "where": "variant v",
    }


def have(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    """So many cores, and memory for runs on all of them."""
    monkeypatch.setattr(half, "usable_cores", lambda: cores)
    monkeypatch.setattr(half, "runs_at_once", lambda count, *, cores: min(count, cores))


def model() -> Any:
    made = model_of(
        [node("Neg", ["x"], "a", name="neg"), node("MatMul", ["a", "w"], "y", name="product")],
        [info("x", ["n", 32])],
        [info("y", ["n", 32])],
        [weight("w", 32, 32)],
    )
    return with_types(made, Path())


@pytest.mark.parametrize("cores", [2, 16])
def test_ranges_are_the_same_at_once_and_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    have(monkeypatch, cores)
    run, meeting, met = half.run, threading.Barrier(3), []

    def together(*given: Any) -> Any:
        """The three inputs after the largest wait for one another, where they run at once."""
        (array,) = given[1].values()
        if cores > 2 and len(array) < max(ROWS):
            meeting.wait(60)
            met.append(len(array))
        return run(*given)

    monkeypatch.setattr(half, "run", together)
    largest, findings = half.largest_values(model(), request(tmp_path))
    assert findings == ()
    assert largest["a"] == max(ROWS) + 1
    assert sorted(met) == ([1, 2, 3] if cores > 2 else [])


@pytest.mark.parametrize("cores", [2, 16])
def test_a_sample_that_does_not_run_is_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    have(monkeypatch, cores)
    largest, (finding,) = half.largest_values(model(), request(tmp_path, samples=(9, 0)))
    assert largest["a"] == 10
    assert finding.code == "AOTC-N013"
    assert finding.what.startswith("1 samples of the calibration data do not run: ")


def test_where_memory_ends_they_are_observed_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(monkeypatch, 16)
    run, main = half.run, threading.get_ident()

    def scarce(*given: Any) -> Any:
        if threading.get_ident() != main:
            raise AotcError("AOTC-R005", "the run failed", found="std::bad_alloc")
        return run(*given)

    monkeypatch.setattr(half, "run", scarce)
    largest, findings = half.largest_values(model(), request(tmp_path))
    assert (largest["a"], findings) == (max(ROWS) + 1, ())
