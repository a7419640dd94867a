"""A fleet of small models by one worker process and by as many as there are cores, by turns.

    python -m benchmarks.fleet.local_workers [--models 200] [--rounds 4]

Each round builds its share of the models twice, without the build cache: the side that comes first
changes from round to round.  Ids of the artifacts must be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import aotc
from benchmarks.fleet.small_models import write_models
from benchmarks.result import Result, at_least, paired_interval

_LIMIT = 1.6
# One process has all cores too: a build alone uses more than one of them by turns.
_SIDES = {"one": 1, "all": None}


def measure(models: int, rounds: int) -> Result:
    """Seconds of each side by round, and the ratio."""
    cores = len(os.sched_getaffinity(0))
    samples: dict[str, list[float]] = {side: [] for side in _SIDES}
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        for number in range(rounds):
            share = models // rounds + (number < models % rounds)
            folder = Path(name) / f"round-{number}"
            write_models(folder / "models", share)
            reports = {}
            for side in list(_SIDES)[:: 1 if number % 2 else -1]:
                reports[side] = _built(folder, side)
                samples[side].append(reports[side].seconds)
                sys.stderr.write(f"round {number}, {side}: {reports[side].seconds:.1f} s\n")
            ids = [[each.artifact_id for each in report.cells] for report in reports.values()]
            assert ids[0] == ids[1], "ids depend on the number of workers"
    ratio, low, high = paired_interval(samples["one"], samples["all"])
    whole = sum(samples["one"]) / sum(samples["all"])
    detail = f"{models} models on {cores} cores; by round {ratio:.2f}, {low:.2f} to {high:.2f}"
    row = at_least("one worker's time / that of all", whole, _LIMIT, detail)
    return Result(rows=(row,), samples=samples)


def _built(folder: Path, side: str) -> aotc.FleetReport:
    fleet = folder / f"{side}.yaml"
    fleet.write_text(
        "schema: aotc.fleet/1\nname: small\nmodels: ['models/*.onnx']\n"
        f"output: '{side}/{{model}}.aotc'\n"
    )
    state = folder / f"state-{side}"
    report = aotc.build_fleet(fleet, jobs=_SIDES[side], cache=False, state=state)
    failed = [each for each in report.cells if each.outcome != "built"]
    assert not failed, failed
    return report


def main() -> int:
    """0 if the limit was met, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    result = measure(given.models, given.rounds)
    sys.stdout.write(json.dumps(result.to_json(), indent=2) + "\n")
    return 0 if all(row.held is not False for row in result.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
