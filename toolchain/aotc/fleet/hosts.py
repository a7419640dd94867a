"""What a machine that builds cells is and has, as it describes itself; what of it a cell needs."""

from __future__ import annotations

from importlib import metadata
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.text import size
from aotc.host.cpu import available_bytes, processor_identity, usable_processors
from aotc.host.probe import probe
from aotc.pipeline.reuse import source_digest
from aotc.spec.fleet import Needs, WorkerDescription
from aotc.spec.providers import RUNTIMES
from aotc.spec.versions import VERSION

_PACKAGES: Final = ("onnx", *RUNTIMES, "numpy")
_MODEL: Final = "model name: "


def describe_host(name: str) -> WorkerDescription:
    """This machine; memory is what is free now."""
    import platform

    host = probe()
    lines = "\n".join(processor_identity()).splitlines()
    cpu = next((each.removeprefix(_MODEL) for each in lines if each.startswith(_MODEL)), "")
    versions = {"aotc": VERSION, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    gpus = tuple(gpu.name for gpu in host.gpus)
    return WorkerDescription(
        name=name,
        cpu=cpu,
        isa=tuple(host.isa or ()),
        gpus=gpus,
        versions=versions,
        sources=source_digest(),
        serves=Needs(
            cpus=float(len(usable_processors())),
            memory_bytes=available_bytes() or None,
            num_gpus=float(len(gpus)),
            accelerator_type=gpus[0] if gpus else "",
        ),
    )


def unserved(needs: Needs, worker: WorkerDescription) -> AotcError | None:
    """Why a worker does not serve what a cell asks for: AOTC-I164; None: it does."""
    has = worker.serves
    pairs = [
        ("cpus", needs.cpus, has.cpus),
        ("num_gpus", needs.num_gpus, has.num_gpus),
        *((name, wanted, has.resources.get(name, 0.0)) for name, wanted in needs.resources.items()),
    ]
    for name, wanted, found in pairs:
        if wanted > found:
            return _lacks(worker, name, f"{wanted:g}", f"{found:g}")
    memory = has.memory_bytes
    if needs.memory_bytes is not None and memory is not None and needs.memory_bytes > memory:
        return _lacks(worker, "memory", size(needs.memory_bytes), size(memory))
    kind = needs.accelerator_type.lower()
    if kind and not any(kind in gpu.lower() for gpu in (*worker.gpus, has.accelerator_type)):
        return _lacks(worker, "accelerator_type", kind, ", ".join(worker.gpus) or "no GPU")
    return None


def _lacks(worker: WorkerDescription, what: str, expected: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-I164",
        f"the worker has too little of what the cell needs: {what}",
        where=worker.name,
        expected=expected,
        found=found,
    )
