"""The framework's answers that stay where a size or a range is claimed no more."""

from __future__ import annotations

from pathlib import Path

from aotc.base.records import replace
from aotc.pipeline.analyze import still_claimed
from aotc.pipeline.types import ReferenceRun


def reference(name: str) -> ReferenceRun:
    exported = {"y": Path(f"{name}.npy")}
    return ReferenceRun(
        name=name, origin="generated", sizes={"n": 1}, inputs={}, outputs=exported, finite=True
    )


def answered(run: ReferenceRun) -> ReferenceRun:
    return replace(run, outputs={"y": Path(f"own-{run.name}.npy")}, exported=run.outputs)


def test_answers_stay_with_their_range_where_ranges_are_numbered_anew() -> None:
    first, second, third = (reference(name) for name in ("min", "further0", "further1"))
    runs = [answered(run) for run in (first, second, third)]
    # The range of further0 is left out: the other takes its number.
    found = still_claimed(runs, [first, replace(third, name="further0")])
    assert {old: (run.name, run.first_output) for old, run in found.items()} == {
        "min": ("min", Path("own-min.npy")),
        "further1": ("further0", Path("own-further1.npy")),
    }
