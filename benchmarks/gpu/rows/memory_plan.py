"""The plan of a GPU's arena beside what ONNX Runtime counts there, by size, of plain sessions.

The graphs are those that torch exported, with the session options of a build; a build would prove
them on the CPU first, which takes minutes.  Each case has a process of its own, several at once:
arenas are counted by session.  Each record is kept when it is known, as the time may end: those of
the sizes, then of calls of all sizes, then of the same within the planned limit.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
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
from aotc.spec.providers import ARENA_LIMIT, CPU, ArenaOptions, CudaOptions, Growth
from aotc.spec.shapes import Dim, Domain
from aotc.spec.variant import SessionSpec
from benchmarks.gpu.cases import CPU_PRECISIONS, NETWORKS, PRECISIONS, Settings, case_name
from benchmarks.gpu.child import ChildFailedError
from benchmarks.gpu.exporting import in_type
from benchmarks.gpu.inputs import inputs_at
from benchmarks.gpu.run import Run
from benchmarks.networks.models import input_shapes

SECONDS = 150
# Those without convolutions first: cuDNN plans each anew whenever a call has another size.
OF = ("bert", "opt_step", "resnet50", "unet")
BATCHES = (1, 16)
# Calls of all sizes in turn, in one session, and seconds for them; processes side by side.
CALLS, CALLS_SECONDS, AT_ONCE = 20, 5.0, 6


def run(run: Run) -> None:
    """Plan and observe the wanted ones of these networks in both precisions."""
    settings = run.settings
    wanted = [
        (name, precision)
        for name in OF
        if name in run.networks
        for precision in (CPU_PRECISIONS if settings.cpu else PRECISIONS)
        if not run.only.precisions or precision in run.only.precisions
        if run.wants("memory_plan", parts(name, precision, settings)[-1])
    ]

    run.out.mkdir(parents=True, exist_ok=True)

    def found(name: str, precision: str) -> None:
        cases = parts(name, precision, settings)
        with run.guarded("memory_plan", cases):
            path = in_type(settings.model(name), precision)
            if path is None:
                raise ChildFailedError("ONNX Runtime's tool makes no half of it")
            request = {
                "settings": settings.to_json(),
                "network": name,
                "precision": precision,
                "model": str(path),
                "whole": str(run.out / f"memory-plan-{name}-{precision}"),
            }
            run.keep_records("memory_plan", "rows.memory_plan:both_ways", request, SECONDS)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for each in [pool.submit(found, *case) for case in wanted]:
            each.result()


def parts(name: str, precision: str, settings: Settings) -> list[str]:
    """The cases of a network's records, in their order."""
    whole = f"{name}/{precision}"
    sizes = [case_name(name, precision, size) for size in batches(settings)]
    return [*sizes, whole, f"{whole}/limited"]


def batches(settings: Settings) -> tuple[int, ...]:
    """The sizes that are observed, from the smallest."""
    return (1, 2) if settings.small else BATCHES


def both_ways(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: the plan, what was observed, and calls within the planned limit."""
    cases = parts(request["network"], request["precision"], Settings.from_json(request["settings"]))
    kept: list[PlannedMemory | ObservedMemory] = []
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        case = _Case(request, Path(folder))
        kept.append(plan := case.planned())
        # The graph that was planned, without its weights.
        if (loaded := Path("loaded.onnx")).exists():
            shutil.copy(loaded, request["whole"] + ".onnx")
        plain = case.session(ArenaOptions())
        for name, call in zip(cases, case.calls[:-1], strict=False):
            kept.append(seen := case.observed(plain, [call]))
            yield {"case": name, **figures(plan, seen)}
        kept.append(seen := case.observed(plain, case.calls, mixed=True))
        yield {"case": cases[-3], **figures(plan, replace(seen, at=seen.at[-1:]))}
        limit = planned_limit(VariantEvidence(name="v", memory=seen, planned=plan), 1)
        yield {"case": cases[-2], **totals(plan, seen, "doubling"), "limit": limit}
        if isinstance(limit, int):
            kept.append(seen := case.observed(case.within(limit), case.calls, mixed=True))
        Path(request["whole"] + ".json").write_text(
            json.dumps([encode(each, full=True) for each in kept], indent=1)
        )
        os.chdir("/")
    if isinstance(limit, int):
        found = totals(plan, seen, "exact")
        kinds = {name: found[name] for name in ("growth", "mixed_calls")}
        yield {"case": cases[-1], "limit": limit, "why_not": seen.why_not, **kinds}
    else:
        yield {"case": cases[-1], "limit": limit, "why_not": "no limit is planned"}


class _Case:
    """A network in a precision, with names for its nodes, and the calls that are observed."""

    def __init__(self, request: dict[str, Any], folder: Path) -> None:
        self._settings = settings = Settings.from_json(request["settings"])
        self._precision = request["precision"]
        self._folder, self._path = folder, folder / "named.onnx"
        network, source = NETWORKS[request["network"]], Path(request["model"])
        self._backend = backend_of("cpu" if settings.cpu else "cuda", {})
        self._providers = list(dict.fromkeys((self._backend.ort_name, CPU)))
        self._inputs = [
            Value(name=name, dtype=dtype, shape=tuple(dims))
            for name, (dims, dtype) in input_shapes(source).items()
        ]
        least, *_, most = batches(settings)
        dims = {"batch": (least, most), **{name: (n, n) for name, n in network.dims.items()}}
        self._domain = Domain(
            dims={
                name: Dim(min=low, opt=low, max=high, origin="stated")
                for name, (low, high) in dims.items()
            }
        )
        self.calls = [
            SizedCall(f"batch {size}", network.sizes(size), inputs_at(source, network.sizes(size)))
            for size in batches(settings)
        ]
        model = onnx.load(source)
        for at, node in enumerate(model.graph.node):
            node.name = f"{node.op_type}_{at}"
        self._outputs = [value.name for value in model.graph.output]
        self._operators = tuple(node.op_type for node in model.graph.node)
        onnx.save(model, self._path, save_as_external_data=True, location="named.bin")

    def session(self, memory: ArenaOptions) -> SessionSpec:
        """As a build has it."""
        use = SessionUse(cuda=CudaOptions(memory=memory), operators=self._operators)
        return self._backend.session("all", self._precision, use)

    def within(self, limit: int) -> SessionSpec:
        """The session with a limit in bytes that was planned."""
        spec, name = self.session(ArenaOptions(limit_bytes="plan")), self._backend.ort_name
        own = {**spec.provider_options[name], ARENA_LIMIT: str(limit)}
        return replace(spec, provider_options={name: own})

    def planned(self) -> PlannedMemory:
        """The plan of the session without a limit; the working directory is written to."""
        stated = {
            "providers": self._providers,
            "contexts": False,
            "session": encode(self.session(ArenaOptions())),
            "weights": str(self._folder),
            "model": str(self._path),
            "captures": {"sizes": [dict(call.sizes) for call in self.calls], "sessions": "one"},
        }
        return planned(stated, self._inputs, self._domain, self.calls)

    def observed(
        self, spec: SessionSpec, calls: Sequence[SizedCall], *, mixed: bool = False
    ) -> ObservedMemory:
        """What is observed of `calls` in a session of this kind; with `mixed`, of all in turn."""
        return observe_memory(
            self._path.read_bytes(),
            spec,
            calls,
            self._outputs,
            providers=self._providers,
            weights_folder=self._folder,
            mixed_calls=self._settings.rounds(CALLS) * len(calls) if mixed else 0,
            seconds=CALLS_SECONDS,
        )


def figures(plan: PlannedMemory, seen: ObservedMemory) -> dict[str, Any]:
    """Bytes as planned and as observed, by size: of both sides, and of the arena."""
    device = plan.device
    there = {run.fixture: run for run in (device.at if device else ())}
    here = {run.fixture: run for run in plan.at}
    sizes: dict[str, dict[str, Any]] = {}
    for at in seen.at:
        sizes[at.fixture] = {"host": [here[at.fixture].peak_bytes, at.activation_bytes]}
        if at.device is not None and at.fixture in there:
            run = there[at.fixture]
            sizes[at.fixture] |= {
                "device": [run.peak_bytes, at.device_activation_bytes],
                "arena": [run.arena_bytes, at.device.allocated - at.device.in_use],
                "inputs": run.input_bytes,
                "outputs": run.output_bytes,
            }
    return {"why_not": plan.why_not or seen.why_not, "sizes": sizes}


def totals(plan: PlannedMemory, seen: ObservedMemory, growth: Growth) -> dict[str, Any]:
    """The same of weights, captured sizes, copies, and the arena after calls of all sizes."""
    device = plan.device
    weights = max((at.device.in_use for at in seen.at if at.device is not None), default=0)
    found: dict[str, Any] = {"weights": [], "captured_sizes": [], "growth": {}}
    if device is not None:
        last = seen.mixed.last_device_allocated if seen.mixed else None
        held = device.exact_bytes if growth == "exact" else device.doubling_bytes
        found = {
            "weights": [device.weights_bytes, weights],
            "captured_sizes": [[e.buffers_bytes, e.arena_bytes] for e in device.captures],
            "growth": {growth: [held, None if last is None else last - weights]},
        }
    return {
        **found,
        "mixed_calls": seen.mixed.calls if seen.mixed else 0,
        "copies": [
            [dict(e.sizes), e.source or "caller", e.target or "caller", e.values, e.bytes]
            for e in plan.copies
        ],
    }
