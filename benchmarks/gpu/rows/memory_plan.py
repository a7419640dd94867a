"""The plan of a GPU's arena beside what ONNX Runtime counts there, by size, of plain sessions.

The graphs are those that torch exported, with the session options of a build; a build would prove
them on the CPU first, which takes minutes.  Each case has a process of its own, several at once:
arenas are counted by session.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

from aotc.base.records import replace
from aotc.pipeline.memory_budgets import planned_limit
from aotc.pipeline.memory_plan import planned
from aotc.providers.base import SessionUse
from aotc.providers.named_backends import backend_of
from aotc.session.observed_memory import SizedCall, observe_memory
from aotc.spec.codec import encode
from aotc.spec.evidence import ObservedMemory, VariantEvidence
from aotc.spec.memory import PlannedMemory
from aotc.spec.payload import Value
from aotc.spec.providers import ARENA_LIMIT, CPU, ArenaOptions, CudaOptions
from aotc.spec.shapes import Dim, Domain
from aotc.spec.variant import SessionSpec
from benchmarks.gpu.cases import CPU_PRECISIONS, NETWORKS, PRECISIONS, Settings
from benchmarks.gpu.child import ChildFailedError, one_record
from benchmarks.gpu.exporting import in_type
from benchmarks.gpu.inputs import inputs_at
from benchmarks.gpu.run import Run
from benchmarks.networks.models import input_shapes

SECONDS = 150
OF = ("resnet50", "bert", "opt_step", "unet")
BATCHES = (1, 4, 16)
# Calls of all sizes in turn, in one session; and processes side by side.
CALLS, AT_ONCE = 40, 6


def run(run: Run) -> None:
    """Plan and observe the wanted ones of these networks in both precisions."""
    settings = run.settings
    cases = [
        (f"{name}/{precision}", name, precision)
        for name in run.networks
        if name in OF
        for precision in (CPU_PRECISIONS if settings.cpu else PRECISIONS)
        if not run.only.precisions or precision in run.only.precisions
        if run.wants("memory_plan", f"{name}/{precision}")
    ]

    run.out.mkdir(parents=True, exist_ok=True)

    def found(case: tuple[str, str, str]) -> dict[str, Any]:
        _, name, precision = case
        path = in_type(settings.model(name), precision)
        if path is None:
            return {"failed": "ONNX Runtime's tool makes no half of it"}
        request = {
            "settings": settings.to_json(),
            "network": name,
            "precision": precision,
            "model": str(path),
            "graph": str(run.out / f"memory-plan-{case[0].replace('/', '-')}.onnx"),
        }
        try:
            return one_record("rows.memory_plan:both_ways", request, seconds=SECONDS)
        except ChildFailedError as error:
            return {"failed": str(error)}

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for (case, *_), record in zip(cases, pool.map(found, cases), strict=True):
            whole = record.pop("whole", None)
            if whole is not None:
                path = run.out / f"memory-plan-{case.replace('/', '-')}.json"
                path.write_text(json.dumps(whole, indent=1))
            run.keep("memory_plan", {"case": case, **record})


def both_ways(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: the plan, what was observed, and calls within the planned limit."""
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        plan, seen, limit, limited = _planned_and_observed(request, Path(folder))
        # The graph that was planned, without its weights.
        if (loaded := Path("loaded.onnx")).exists():
            shutil.copy(loaded, request["graph"])
        os.chdir("/")
    yield {
        **figures(plan, seen),
        "limit": limit,
        "limited": limited.why_not if limited else "not tried",
        "growth": growth(plan, seen, limited),
        "whole": [encode(each, full=True) for each in (plan, seen, limited) if each is not None],
    }


def _planned_and_observed(
    request: dict[str, Any], folder: Path
) -> tuple[PlannedMemory, ObservedMemory, int | str, ObservedMemory | None]:
    settings = Settings.from_json(request["settings"])
    network, source = NETWORKS[request["network"]], Path(request["model"])
    batches = (1, 2, 3) if settings.small else BATCHES
    backend = backend_of("cpu" if settings.cpu else "cuda", {})
    providers = list(dict.fromkeys((backend.ort_name, CPU)))

    inputs = [
        Value(name=name, dtype=dtype, shape=tuple(dims))
        for name, (dims, dtype) in input_shapes(source).items()
    ]
    fixed = {name: Dim(min=n, opt=n, max=n, origin="stated") for name, n in network.dims.items()}
    batch = Dim(min=batches[0], opt=batches[1], max=batches[-1], origin="stated")
    domain = Domain(dims={"batch": batch, **fixed})
    calls = [
        SizedCall(f"batch {size}", network.sizes(size), inputs_at(source, network.sizes(size)))
        for size in batches
    ]
    model = onnx.load(source)
    for at, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{at}"
    path = folder / "named.onnx"
    outputs = [value.name for value in model.graph.output]
    onnx.save(model, path, save_as_external_data=True, location="named.bin")
    operators = tuple(node.op_type for node in model.graph.node)
    del model

    def session(memory: ArenaOptions) -> SessionSpec:
        use = SessionUse(cuda=CudaOptions(memory=memory), operators=operators)
        return backend.session("all", request["precision"], use)

    def observed(spec: SessionSpec) -> ObservedMemory:
        return observe_memory(
            path.read_bytes(),
            spec,
            calls,
            outputs,
            providers=providers,
            weights_folder=folder,
            mixed_calls=settings.rounds(CALLS) * len(calls),
        )

    plain = session(ArenaOptions())
    stated = {
        "providers": providers,
        "contexts": False,
        "session": encode(plain),
        "weights": str(folder),
        "model": str(path),
        "captures": {"sizes": [dict(call.sizes) for call in calls], "sessions": "one"},
    }
    plan, seen = planned(stated, inputs, domain, calls), observed(plain)
    limit = planned_limit(VariantEvidence(name="v", memory=seen, planned=plan), 1)
    if not isinstance(limit, int):
        return plan, seen, limit, None
    bounded = session(ArenaOptions(limit_bytes="plan"))
    own = {**bounded.provider_options[backend.ort_name], ARENA_LIMIT: str(limit)}
    return plan, seen, limit, observed(replace(bounded, provider_options={backend.ort_name: own}))


def figures(plan: PlannedMemory, seen: ObservedMemory) -> dict[str, Any]:
    """Bytes as planned and as observed: by size on both sides, weights, captured sizes, copies."""
    device = plan.device
    there = {run.fixture: run for run in (device.at if device else ())}
    here = {run.fixture: run for run in plan.at}
    sizes: dict[str, dict[str, Any]] = {}
    for at in seen.at:
        sizes[at.fixture] = {"host": [here[at.fixture].peak_bytes, at.activation_bytes]}
        if at.device is not None and at.fixture in there:
            run = there[at.fixture]
            arena = at.device.allocated - at.device.in_use
            sizes[at.fixture] |= {
                "device": [run.peak_bytes, at.device_activation_bytes],
                "arena": [run.arena_bytes, arena],
                "inputs": run.input_bytes,
                "outputs": run.output_bytes,
            }
    weights = [at.device.in_use for at in seen.at if at.device is not None]
    return {
        "why_not": plan.why_not or seen.why_not,
        "sizes": sizes,
        "weights": [device.weights_bytes, max(weights, default=0)] if device else [],
        "captured_sizes": [
            [e.buffers_bytes, e.arena_bytes] for e in (device.captures if device else ())
        ],
        "copies": [
            [dict(e.sizes), e.source or "caller", e.target or "caller", e.values, e.bytes]
            for e in plan.copies
        ],
    }


def growth(
    plan: PlannedMemory, seen: ObservedMemory, limited: ObservedMemory | None
) -> dict[str, list[int | None]]:
    """Bytes of the arena beside weights after calls of all sizes, planned and observed."""
    if plan.device is None:
        return {}
    weights = max((at.device.in_use for at in seen.at if at.device is not None), default=0)

    def taken(found: ObservedMemory | None) -> int | None:
        last = found.mixed.last_device_allocated if found and found.mixed else None
        return None if last is None else last - weights

    return {
        "doubling": [plan.device.doubling_bytes, taken(seen)],
        "exact": [plan.device.exact_bytes, taken(limited)],
    }
