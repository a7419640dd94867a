"""Calls of tensors that stay and of new inputs: the artifact, torch compiled and eager, and ORT.

A process handles one network in one precision; sides take turns in it, at each batch.  New inputs
come from page-locked memory of the host, and outputs stay on the device.  The plain session, which
also gives the answers to compare with, has tensors that stay alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.artifacts import artifact, batch_dims, profile_fields
from benchmarks.gpu.cases import NETWORKS, Network, Settings, case_name
from benchmarks.gpu.exporting import in_type
from benchmarks.gpu.inputs import Inputs, as_taken, inputs_at
from benchmarks.gpu.run import Run

SECONDS = 560
OURS, COMPILED, EAGER, PLAIN = "aotc", "torch.compile", "eager", "plain session"
# Seconds of calls that stay, and of calls with new inputs.
_BUDGET = 2.5
# New inputs that take turns.
SETS = 4


def new_inputs(side: str) -> str:
    """The name of a side's samples with new inputs."""
    return f"{side}, new inputs"


def run(run: Run) -> None:
    """Measure all wanted networks and precisions."""
    each_case(run, "calls", "rows.calls:time_cases")


def each_case(run: Run, row: str, function: str, environment: dict[str, str] | None = None) -> None:
    """A process of `function` for each network and precision, with the cases that are missing."""
    for name, precision, wanted in missing(run, row):
        with run.guarded(row, wanted):
            request = request_of(run, name, precision, wanted)
            run.keep_records(row, function, request, SECONDS, environment)


def missing(run: Run, row: str) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Each network and precision with the batches that a row is still to measure, by case."""
    settings = run.settings
    for name in run.networks:
        network = NETWORKS[name]
        for precision in settings.precisions(network, run.only):
            cases = {
                case_name(name, precision, batch): batch
                for batch in settings.batches(network, run.only)
            }
            wanted = {
                case: batch
                for case, batch in cases.items()
                if run.only.batch(batch) and run.wants(row, case)
            }
            if wanted:
                yield name, precision, wanted


def request_of(run: Run, name: str, precision: str, wanted: dict[str, int]) -> dict[str, Any]:
    """What a process is told of these cases; raises ChildFailedError if no artifact is built."""
    settings, network, model = run.settings, NETWORKS[name], run.settings.model(name)
    batches = settings.batches(network, run.only)
    fields = profile_fields(settings, precision, batch_dims(batches, network.dims))
    return {
        "settings": settings.to_json(),
        "network": name,
        "precision": precision,
        "artifact": str(artifact(settings, model, precision, fields)),
        "plain": str(in_type(model, precision) or ""),
        "cases": wanted,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What the cases of one network and precision share, in their process."""

    settings: Settings
    network: Network
    precision: str
    module: Any
    model: Any

    @classmethod
    def of(cls, request: dict[str, Any]) -> Opened:
        """The loaded artifact, and the module with random weights."""
        from benchmarks.gpu import contenders

        contenders.prepare_torch()
        import aotc
        from benchmarks.gpu import networks

        settings = Settings.from_json(request["settings"])
        return cls(
            settings=settings,
            network=NETWORKS[request["network"]],
            precision=request["precision"],
            module=networks.network(request["network"], settings.small),
            model=aotc.load(request["artifact"], store=settings.store),
        )

    def inputs(self, batch: int) -> list[Inputs]:
        """Inputs that take turns."""
        path, sizes = self.settings.model(self.network.name), self.network.sizes(batch)
        return [inputs_at(path, sizes, seed) for seed in range(SETS)]

    def ours(self, sets: list[Inputs]) -> Any:
        """The artifact's side."""
        from benchmarks.gpu import contenders

        return contenders.ours(self.settings, self.model, sets)

    def theirs(self, sets: list[Inputs], *, compiles: bool) -> Any:
        """torch's side."""
        from benchmarks.gpu import contenders

        return contenders.theirs(
            self.settings, self.module, sets, self.precision, compiles=compiles
        )


def time_cases(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In a fresh process: a record for each batch."""
    opened = Opened.of(request)
    from benchmarks.gpu import contenders

    settings, network = opened.settings, opened.network
    # Answers are compared with those of the float32 model, where it has no half.
    plain_model = Path(request["plain"] or settings.model(network.name))
    session = contenders.plain_session(settings, plain_model)
    for case, batch in request["cases"].items():
        sets = opened.inputs(batch)
        ours = opened.ours(sets)
        plain, outputs = contenders.plain(
            settings, session, contenders.on_device(settings, sets[0])
        )
        plain()
        expected = {name: value.numpy() for name, value in outputs.items()}
        # Later calls write to the same memory.
        difference = contenders.difference(contenders.answers(ours.bound()), expected)
        compiled = opened.theirs(sets, compiles=True)
        started = time.perf_counter()
        compiled.bound()
        seconds = time.perf_counter() - started
        sides = {OURS: ours, COMPILED: compiled, EAGER: opened.theirs(sets, compiles=False)}
        bound = {name: side.bound for name, side in sides.items()}
        samples = _alternate(settings, {**bound, PLAIN: plain} if request["plain"] else bound)
        renewed = {new_inputs(name): side.renewed for name, side in sides.items()}
        yield {
            "case": case,
            "samples": {**samples, **_alternate(settings, renewed)},
            "captured": ours.captured,
            "variant": opened.model.route(as_taken(opened.model, sets[0])).variant,
            "compile_seconds": seconds,
            "difference": difference,
        }


def _alternate(settings: Settings, calls: dict[str, Any]) -> dict[str, list[float]]:
    from benchmarks.gpu.timing import by_turns, enough_rounds

    for call in calls.values():
        for _ in range(3):
            call()
    started = time.perf_counter()
    for call in calls.values():
        call()
    once = time.perf_counter() - started
    rounds = settings.rounds(enough_rounds(once, budget=_BUDGET))
    return by_turns(calls, rounds, warm_up=settings.rounds(10))
