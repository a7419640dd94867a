"""`github`: a workflow of GitHub Actions with a job for each shard, and one that merges reports."""

from __future__ import annotations

import json

from aotc.fleet.emitted.base import Files, Machines, ShardedFleet, extra_of, filled

_RUNNER = "ubuntu-24.04"


def github_files(fleet: ShardedFleet) -> Files:
    """The workflow, for `.github/workflows`."""
    rows = [
        {"shard": number, "runner": _runner(kind), "extra": extra_of(kind.needs)}
        for kind in fleet.machines
        for number in range(kind.first, kind.first + kind.count)
    ]
    text = filled(
        "github.yml",
        NAME=fleet.name,
        FLEET=fleet.file,
        SHARDS=fleet.count,
        ROWS="\n".join(f"          - {json.dumps(row)}" for row in rows),
        OUTPUTS="\n".join(f"            {folder}/" for folder in fleet.outputs),
    )
    return {f"fleet-{fleet.name}.yml": text}


def _runner(kind: Machines) -> str | list[str]:
    """A runner of GitHub, or one of the user's that has these labels."""
    return ["self-hosted", "linux", *kind.labels] if kind.labels else _RUNNER
