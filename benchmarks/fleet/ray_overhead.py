"""What Ray costs a fleet for each cell, and whether any of many cells is lost.

`python -m benchmarks.fleet.ray_overhead [--workers 8] [--cells 200]`, in an environment with the
extra `fleet`: jobs that wait a tenth of a second, as builds would take longer and cores are short;
with as many at once as there are workers, the overhead is what a cell takes beyond the time that
its worker measures; what the process of a job costs, which any executor forks, is told beside it.
Exit status 1 above 50 ms.

`--models 1000`: then so many small models, no two equal, built and signed through Ray; none may be
lost, and each artifact's manifest comes back.  `--keep FILE` writes the figures as JSON, which
`benchmarks.fleet.speed_up` reads.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any, Final

from aotc.fleet.executors.base import Job
from aotc.fleet.executors.ray import RayExecutor
from aotc.spec.codec import Json, encode
from aotc.spec.fleet import Needs
from aotc.spec.profile import Profile
from aotc.spec.profile_files import load_profile
from aotc.trust import key_files
from benchmarks.fleet.small_models import write_models

LIMIT_SECONDS: Final = 0.05
WAIT_SECONDS: Final = 0.1
ROOT: Final = Path(__file__).parents[2]


def main() -> int:
    """0 if the limit is met, and nothing was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--wait", type=float, default=WAIT_SECONDS)
    parser.add_argument("--models", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    # Workers of Ray import this module by its name.
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    started = time.monotonic()
    with RayExecutor(jobs=given.workers) as executor:
        figures: dict[str, Any] = {"workers": given.workers}
        figures["start_seconds"] = time.monotonic() - started
        figures |= waited(executor, given.workers, given.cells, given.wait)
        if given.models:
            figures["built"] = built(executor, given.models)
    print(json.dumps(figures, indent=2))
    if given.keep is not None:
        given.keep.write_text(json.dumps(figures, indent=2) + "\n")
    lost = figures["lost"] + figures.get("built", {}).get("lost", 0)
    return 1 if lost or figures["overhead_seconds"] > LIMIT_SECONDS else 0


def waited(executor: RayExecutor, workers: int, cells: int, seconds: float) -> dict[str, Any]:
    """The overhead of a cell, in a run in which every worker is warm."""

    def jobs(count: int) -> list[Job]:
        return [
            Job(
                name=f"{number}",
                function="benchmarks.fleet.ray_overhead:wait",
                request={"seconds": seconds},
            )
            for number in range(count)
        ]

    # The first job of each worker starts its processes.
    list(executor.run(jobs(3 * workers)))
    started = time.monotonic()
    outcomes = list(executor.run(jobs(cells)))
    took = time.monotonic() - started
    return {
        "cells": cells,
        "lost": cells - sum(outcome.error is None for outcome in outcomes),
        "wait_seconds": seconds,
        "seconds": took,
        # What is Ray's: a cell's share of the time beyond the time in its worker.
        "overhead_seconds": took * workers / cells - mean(each.seconds for each in outcomes),
        # What any executor has: the process that is forked, its folder, its files.
        "process_seconds": mean(each.seconds for each in outcomes) - seconds,
        # The share of the driver, which serves all workers one after the other.
        "driver_cpu_seconds_by_cell": _driver_seconds(executor, jobs(cells)) / cells,
    }


def _driver_seconds(executor: RayExecutor, jobs: list[Job]) -> float:
    before = time.process_time()
    for _ in executor.run(jobs):
        pass
    return time.process_time() - before


def built(executor: RayExecutor, count: int) -> dict[str, Any]:
    """Build so many models; what they took, and how many were lost."""
    profile = load_profile("edge")
    with tempfile.TemporaryDirectory() as folder:
        private, _ = key_files.generate(Path(folder) / "key.pem")
        files = write_models(Path(folder) / "models", count)
        jobs = [
            Job(
                name=path.name,
                function="benchmarks.fleet.ray_overhead:build",
                request={
                    "model": f"{{file:model/{path.name}}}",
                    "key": "{file:key/key.pem}",
                    "profile": encode(profile, full=True),
                },
                files={f"model/{path.name}": path, "key/key.pem": private},
                needs=Needs(),
            )
            for path in files
        ]
        started = time.monotonic()
        seconds, ids, errors = [], set(), []
        for outcome in executor.run(jobs):
            seconds.append(outcome.seconds)
            if outcome.error is not None:
                errors.append(outcome.error.line())
                continue
            assert outcome.folder is not None
            assert (outcome.folder / "built.aotc" / "payload" / "aotc.json").is_file()
            ids.add(outcome.value)
        return {
            "models": count,
            "lost": count - len(ids),
            "errors": errors[:5],
            "seconds": time.monotonic() - started,
            "cell_seconds": sorted(seconds),
        }


# In the process of a job.


def wait(request: Json) -> Json:
    """Stand for a build."""
    time.sleep(request["seconds"])
    return None


def build(request: Json) -> Json:
    """Build a model as a fleet does; the artifact's id."""
    from aotc.pipeline.build import PRELOADED_MODULES
    from aotc.pipeline.build import build as build_artifact
    from aotc.session.worker_pool import Workers
    from aotc.spec.codec import decode

    profile = decode(Profile, request["profile"])
    with Workers(profile.limits, PRELOADED_MODULES, forked=True) as workers:
        report = build_artifact(
            Path(request["model"]),
            profile=profile,
            output=Path("out/built.aotc").absolute(),
            key=request["key"],
            cache=False,
            workers=workers,
        )
    return report.artifact_id


if __name__ == "__main__":
    sys.exit(main())
