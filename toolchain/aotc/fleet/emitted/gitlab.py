"""`gitlab`: a parent pipeline that starts a child with a job for each kind of machine."""

from __future__ import annotations

import json
from collections.abc import Iterator

from aotc.base.errors import AotcError
from aotc.fleet.emitted.base import Files, Machines, ShardedFleet, extra_of, filled

# What `parallel` takes.
_MOST = 200


def gitlab_files(fleet: ShardedFleet) -> Files:
    """The parent's part, to be included, and the child's; raises AOTC-I189.

    That is so for more shards of a kind than GitLab runs, and for files outside of the repository.
    """
    if not fleet.folder:
        raise AotcError(
            "AOTC-I189",
            "a parent pipeline finds its child in the repository alone",
            where="--output",
            expected="a folder in the repository of the fleet, with a plain name",
        )
    child = f"fleet-{fleet.name}-shards.gitlab-ci.yml"
    place = child if fleet.folder == "." else f"{fleet.folder}/{child}"
    jobs = {f"shards-{number}": kind for number, kind in enumerate(fleet.machines, 1)}
    return {
        f"fleet-{fleet.name}.gitlab-ci.yml": filled("gitlab.yml", NAME=fleet.name, CHILD=place),
        child: filled(
            "gitlab-shards.yml",
            FLEET=fleet.file,
            SHARDS=fleet.count,
            PATHS=["fleet-reports/", *(f"{folder}/" for folder in fleet.outputs)],
            JOBS="".join(f"{line}\n" for name, kind in jobs.items() for line in _job(name, kind)),
            NEEDS=list(jobs),
        ),
    }


def _job(name: str, kind: Machines) -> Iterator[str]:
    if kind.count > _MOST:
        raise AotcError(
            "AOTC-I189",
            "GitLab runs no job in so many parts",
            where="--shards",
            expected=f"at most {_MOST} for each kind of machine",
            found=str(kind.count),
        )
    yield f"{name}:"
    yield "  extends: .shards"
    if kind.count > 1:
        yield f"  parallel: {kind.count}"
    if kind.labels:
        yield f"  tags: {json.dumps(kind.labels)}"
    stated = {"FIRST_SHARD": str(kind.first), "AOTC_EXTRA": extra_of(kind.needs)}
    yield f"  variables: {json.dumps(stated)}"
    yield ""
