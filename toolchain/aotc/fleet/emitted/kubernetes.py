"""`kubernetes`: an indexed Job for each kind of machine, and one that merges their reports."""

from __future__ import annotations

import json
import math
import re

from aotc.fleet.emitted.base import Files, Machines, ShardedFleet, filled
from aotc.spec.codec import Json
from aotc.spec.versions import VERSION

_GPU = "nvidia.com/gpu"
# Of a cell whose memory the fleet does not state.
_MEMORY_BYTES = 4 << 30
_LONGEST = 40


def kubernetes_files(fleet: ShardedFleet) -> Files:
    """The jobs of the shards, which write into one claim, and the job that comes after them."""
    label = (
        re.sub(r"[^a-z0-9]+", "-", fleet.name.lower()).strip("-")[:_LONGEST].strip("-") or "fleet"
    )
    shards, merge = f"fleet-{fleet.name}-shards.yaml", f"fleet-{fleet.name}-merge.yaml"
    head = filled(
        "kubernetes-head.yaml",
        FILE=fleet.file,
        LABELLING=_labelling(fleet),
        SHARDS_FILE=shards,
        MERGE_FILE=merge,
        LABEL=label,
    )
    image = "registry.example.com/aotc-build:" + VERSION
    jobs = [
        filled(
            "kubernetes-shards.yaml",
            JOB=f"fleet-{label}-{number}",
            LABEL=label,
            COUNT=kind.count,
            FIRST=kind.first,
            SELECTOR=_selector(kind),
            TOLERATIONS=_tolerations(kind),
            IMAGE=image,
            FLEET=json.dumps(fleet.file),
            SHARDS=fleet.count,
            REQUESTS=_requests(kind),
            LIMITS=_limits(kind),
        )
        for number, kind in enumerate(fleet.machines, 1)
    ]
    merging = filled(
        "kubernetes-merge.yaml",
        FILE=shards,
        JOB=f"fleet-{label}-merge",
        LABEL=label,
        IMAGE=image,
        SHARDS=fleet.count,
    )
    return {shards: head + "---\n".join(jobs), merge: merging}


def _labelling(fleet: ShardedFleet) -> str:
    """The commands that label nodes."""
    found = dict.fromkeys(item for kind in fleet.machines for item in _selector(kind).items())
    return "; ".join(f"kubectl label node NODE {k}={v}" for k, v in found) or "none is needed here."


def _selector(kind: Machines) -> dict[str, str]:
    needs = kind.needs
    found = {f"aotc/{name}": "true" for name in kind.labels if needs.resources.get(name)}
    if needs.accelerator_type:
        found["aotc/accelerator-type"] = needs.accelerator_type
    return found


def _tolerations(kind: Machines) -> list[Json]:
    if not kind.needs.num_gpus:
        return []
    return [{"key": _GPU, "operator": "Exists", "effect": "NoSchedule"}]


def _requests(kind: Machines) -> dict[str, str]:
    memory = kind.needs.memory_bytes or _MEMORY_BYTES
    return {
        "cpu": f"{math.ceil(kind.needs.cpus * 1000)}m",
        "memory": f"{math.ceil(memory / (1 << 20))}Mi",
    }


def _limits(kind: Machines) -> dict[str, str]:
    """Whole GPUs, as nodes give no parts of one, and the memory that was asked for."""
    found = {"memory": _requests(kind)["memory"]}
    if kind.needs.num_gpus:
        found[_GPU] = str(math.ceil(kind.needs.num_gpus))
    return found
