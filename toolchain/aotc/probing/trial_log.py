"""A log of runs in a file, so that a search that starts again repeats none of them.

A run that crashes or hangs ends the process.  The next one is started with `TRYING` (the sizes of
that run, and the CPU time used until then) and `TRIED` (all runs before it).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from aotc.contract.codec.parsing import Json
from aotc.probing.sizes.trials import Trial
from aotc.watching import Count, Poll

TRYING: Final = "trying.json"
TRIED: Final = "tried.jsonl"

Shapes = tuple[tuple[int, ...] | None, ...]


class FinishedRun(NamedTuple):
    """The outcome of a run, and the shape of each output (None: not a tensor)."""

    trial: Trial
    shapes: Shapes


class TrialLog:
    """Runs by sizes and by the number of the input values."""

    def __init__(self, folder: Path, done: Sequence[Json]) -> None:
        """`done` are the lines that an earlier process wrote."""
        self._trying = folder / TRYING
        self._tried = folder / TRIED
        self._done = {_key(item["sizes"], item["values"]): _from_json(item) for item in done}
        self._tried.write_text("".join(f"{json.dumps(item)}\n" for item in done))

    def begin(self, sizes: Mapping[str, int], seconds: float) -> None:
        """Record that the run at `sizes` starts, after `seconds` of CPU time."""
        self._trying.write_text(json.dumps({"sizes": dict(sizes), "seconds": seconds}))

    def begin_several(self, seconds: float) -> None:
        """Record that several runs go on at once, from `seconds` of CPU time on."""
        self._trying.write_text(json.dumps({"sizes": {}, "seconds": seconds, "several": True}))

    def done(self, sizes: Mapping[str, int], values: int) -> FinishedRun | None:
        """The run at `sizes` with the input `values` of that number, if it was done before."""
        return self._done.get(_key(sizes, values))

    def add(self, sizes: Mapping[str, int], values: int, done: FinishedRun) -> None:
        """Record the outcome of the run at `sizes`."""
        self._done[_key(sizes, values)] = done
        trial = done.trial
        line = {
            "sizes": dict(sizes),
            "values": values,
            "ok": trial.ok,
            "error": trial.error,
            "empty": trial.empty,
            "shapes": done.shapes,
        }
        with self._tried.open("a") as file:
            file.write(f"{json.dumps(line)}\n")


def runs_so_far(folder: Path) -> Poll:
    """How many runs the search in `folder` has done; how many it will do, nobody knows."""

    def poll() -> Count | None:
        try:
            return Count((folder / TRIED).read_bytes().count(b"\n"), None, "probes")
        except OSError:
            return None

    return poll


def read_leftovers(folder: Path) -> tuple[dict[str, int], float, list[Json]]:
    """From a process that died: the sizes it tried, CPU seconds used before, and finished runs.

    No sizes if it did not die during a run.
    """
    last, tried = _last_begun(folder), folder / TRIED
    lines = tried.read_text().splitlines() if tried.exists() else []
    found = last.get("sizes", {}), last.get("seconds", 0.0)
    return *found, [item for line in lines if (item := _parsed(line)) is not None]


def died_in_several(folder: Path) -> bool:
    """Whether a process that died was running several at once."""
    return bool(_last_begun(folder).get("several"))


def _last_begun(folder: Path) -> dict[str, Json]:
    trying = folder / TRYING
    return _parsed(trying.read_text() if trying.exists() else "") or {}


def _parsed(text: str) -> Json | None:
    """The JSON in `text`; None if the process ended while it wrote."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _key(sizes: Mapping[str, int], values: int) -> tuple[int, tuple[tuple[str, int], ...]]:
    return values, tuple(sorted(sizes.items()))


def _from_json(item: Json) -> FinishedRun:
    trial = Trial(ok=item["ok"], error=item["error"], empty=item["empty"])
    return FinishedRun(trial, tuple(tuple(s) if s is not None else None for s in item["shapes"]))
