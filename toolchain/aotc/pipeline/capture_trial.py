"""A trial of a variant's captured CUDA graphs, all in a process of its own, as a load holds them.

A graph that is replayed after its session ran other sizes may crash, and then the GPU's context is
lost for the process; or it may answer with what the other sizes left behind (ADR 96).  One graph
alone shows neither.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.graph import values
from aotc.pipeline.context import BuildState
from aotc.pipeline.lower import not_capturable, open_variant, variant_request
from aotc.pipeline.types import LoweredModel, ReferenceRun
from aotc.runtime.value_files import resize
from aotc.session.worker import steps_of, tell_steps
from aotc.spec.codec import Json, decode, encode
from aotc.spec.payload import Value
from aotc.spec.variant import GraphCapture

if TYPE_CHECKING:
    from aotc.session.device.capturing_runner import CapturingRunner


JOB: Final = "aotc.pipeline.capture_trial:trial_job"
# Replays of all sizes together, where they are quick; and of each size at least.
_REPLAYS: Final = 200
_LEAST: Final = 4
# Work of all replays: some ten seconds of a GPU, and a few of copies and comparisons on the host.
_MOST_FLOPS: Final = 2e15
_MOST_BYTES: Final = 2 << 30
# How many inputs each size is run with.
_TURNS: Final = 3
# Sizes that are not captured, which run between the replays, and how often one of them does.
_OTHERS: Final = 2
_OTHER_SHARE: Final = 0.125
# Runs without a graph that tell whether a model repeats its answers to the bit.
_REPEATS: Final = 8
# What ended the trial says something of the graphs: the process died or hung, or CUDA failed.
_FAILED: Final = frozenset({"AOTC-I013", "AOTC-I014", "AOTC-R005", "AOTC-R036"})


@record
class Case:
    """Sizes of a call: the files of its inputs, which are `resized` to them; and its work."""

    sizes: Mapping[str, int]
    inputs: Mapping[str, str]
    captured: bool
    flops: float
    bytes: float


@record
class Step:
    """What the trial does with a case: `capture` it, or run it with its inputs moved by `turn`."""

    captures: bool
    case: int
    turn: int = 0


def try_captures(lowered: LoweredModel, state: BuildState) -> AotcError | None:
    """Why a variant that captures may not be promised: AOTC-P014 or P015; None if it may.

    Its sizes are captured in the order of a load, and then replayed in random order, with calls
    between that are not captured.  Raises AOTC-R025, I019, M004, R008, and I015, I018 and I043 from
    the sandbox.
    """
    graphs = lowered.cuda_graphs
    if graphs is None:
        return None
    plan, place = lowered.plan, state.context.places.of("cuda.graphs")
    where = f"variant {plan.name}"
    cases = _cases(lowered, graphs)
    steps = planned_steps(cases)
    request = {
        **variant_request(lowered, state.context),
        "variant": plan.name,
        "graphs": encode(replace(graphs, on_refusal="fail")),
        "values": [encode(value) for value in lowered.analyzed.source.inputs],
        "cases": [encode(case) for case in cases],
        "steps": [encode(step) for step in steps],
    }
    folder = state.work / f"captures-{plan.name}"
    told = steps_of(folder, "replays")
    state.clock.reporter.follow("replays", told)
    try:
        wrong = state.workers.run(JOB, request, folder=folder, where=where).value["wrong"]
    except AotcError as error:
        if error.code == "AOTC-R024":
            return not_capturable(where, error.found or error.what, place)
        if error.code not in _FAILED:
            raise
        wrong = _in_words(error)
    if not wrong:
        return None
    count = told()
    return AotcError(
        "AOTC-P015",
        "captured CUDA graphs crash or answer wrongly beside each other",
        where=where,
        expected="each captured size is replayed rightly, whatever ran before",
        found=f"{_when(cases, steps, count.done if count else -1)}: {wrong}",
        place=place,
    )


def _in_words(error: AotcError) -> str:
    job = JOB.rpartition(":")[2]
    if error.code.startswith("AOTC-I"):
        return f"the process {error.what.removeprefix(f'{job} ')}"
    return error.found or error.what


def _when(cases: Sequence[Case], steps: Sequence[Step], done: int) -> str:
    """At which step the trial ended, and what was captured by then."""
    if not 0 <= done < len(steps):
        return "before the first capture"
    sizes = _words(cases[steps[done].case].sizes)
    before = [_words(cases[step.case].sizes) for step in steps[:done] if step.captures]
    captured = f", after {'; '.join(before)}" if before else ""
    if steps[done].captures:
        return f"at the capture of {sizes}{captured}"
    first = sum(step.captures for step in steps)
    of = f"{sizes} ({captured.removeprefix(', after ')} captured)"
    return f"at replay {done - first + 1} of {len(steps) - first}, of {of}"


def _words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{dim}={size}" for dim, size in sizes.items()) or "the only size"


# What is tried.


def _cases(lowered: LoweredModel, graphs: GraphCapture) -> list[Case]:
    """The captured sizes in the order of a load, the largest first, and some that are not."""
    domain, plan = lowered.analyzed.domain, lowered.plan
    references = lowered.analyzed.references_of(plan)
    captured = [
        domain.complete(sizes)
        for sizes in sorted(graphs.sizes, key=lambda sizes: -math.prod(sizes.values()))
    ]
    others = [run for run in references if run.sizes not in captured]
    flops = float(sum(node.flops for node in lowered.planned_placement))
    best = domain.corner("opt")

    def case(sizes: Mapping[str, int], run: ReferenceRun, *, captured: bool) -> Case:
        # Both grow with the sizes at least; nothing but the number of replays depends on it.
        files = (*run.inputs.values(), *run.outputs.values())
        count = sum(path.stat().st_size for path in files)
        return Case(
            sizes=sizes,
            inputs=run.input_paths,
            captured=captured,
            flops=flops * _times(sizes, best),
            bytes=count * _times(sizes, run.sizes),
        )

    # The first and the last are the least alike.
    chosen = [*others[:1], *others[1:][-1:]][:_OTHERS]
    return [
        *(case(sizes, references[0], captured=True) for sizes in captured),
        *(case(run.sizes, run, captured=False) for run in chosen),
    ]


def _times(sizes: Mapping[str, int], others: Mapping[str, int]) -> float:
    return math.prod(max(size, 1) / max(others.get(dim, 1), 1) for dim, size in sizes.items())


def planned_steps(cases: Sequence[Case]) -> list[Step]:
    """Each captured case is captured; then cases are run in a random order that is always equal."""
    captured = [index for index, case in enumerate(cases) if case.captured]
    others = [index for index, case in enumerate(cases) if not case.captured]
    flops = sum(cases[index].flops for index in captured) / len(captured)
    moved = sum(cases[index].bytes for index in captured) / len(captured)
    count = min(_REPLAYS, int(_MOST_FLOPS / max(flops, 1)), int(_MOST_BYTES / max(moved, 1)))
    count = max(count, _LEAST * len(captured))
    chance = np.random.default_rng(0)
    steps = [Step(captures=True, case=index) for index in captured]
    for _ in range(count):
        among = others if others and chance.random() < _OTHER_SHARE else captured
        steps.append(
            Step(captures=False, case=int(chance.choice(among)), turn=int(chance.integers(_TURNS)))
        )
    return steps


# The worker job of a trial.


def trial_job(request: Json) -> Json:
    """In the worker: take the steps; `wrong` is what is wrong at the last one, "" if nothing is.

    The first answer for the same inputs is compared with a run without a graph, and later ones with
    the first, bit by bit.
    """
    from aotc.session.device.cuda_place import CudaPlace, open_capturing

    graphs = decode(GraphCapture, request["graphs"])
    inputs = [decode(Value, item) for item in request["values"]]
    cases = [decode(Case, item) for item in request["cases"]]
    steps = [decode(Step, item) for item in request["steps"]]
    opener = partial(open_variant, request, records=False)
    runner = open_capturing(graphs, CudaPlace(), opener, f"variant {request['variant']}")
    firsts: dict[tuple[int, int], list[bytes]] = {}

    @cache
    def moved(index: int, turn: int) -> dict[str, Any]:
        case = cases[index]
        given = {name: values.load(Path(path)) for name, path in case.inputs.items()}
        return dict(_moved(resize(given, inputs, case.sizes), turn))

    for number, step in enumerate(steps):
        tell_steps(number, len(steps))
        key, sizes = (step.case, step.turn), cases[step.case].sizes
        if step.captures:
            runner.capture(moved(*key), sizes)
            continue
        wrong, firsts[key] = _compared(runner, moved(*key), sizes, firsts.get(key))
        if wrong:
            return {"wrong": wrong}
    tell_steps(len(steps), len(steps))
    runner.close()
    return {"wrong": ""}


def _moved(inputs: Mapping[str, Any], turn: int) -> Iterator[tuple[str, Any]]:
    """The inputs with their elements moved by `turn` places, which keeps them valid mostly."""
    for name, array in inputs.items():
        yield name, np.roll(array.reshape(-1), turn).reshape(array.shape) if turn else array


def _compared(
    runner: CapturingRunner,
    inputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    first: list[bytes] | None,
) -> tuple[str, list[bytes]]:
    """What is wrong with an answer, and the digests of its outputs, or of the `first` answer's."""
    from aotc.session.device.fixed_run import agree

    found = runner.run(inputs, None, sizes)
    digests = _digests(found)
    if digests == first:
        return "", digests
    computed = runner.run_without_graph(inputs)
    names = [output.name for output in runner.session.get_outputs()]
    for name, one, other in zip(names, found, computed, strict=True):
        if not agree(np.asarray(one), np.asarray(other)):
            return f"output {name!r} is not what a run without a graph computes", digests
    if first is None:
        return "", digests
    # A model that draws numbers, or sums in any order, never repeats the bits.
    if any(
        _digests(runner.run_without_graph(inputs)) != _digests(computed) for _ in range(_REPEATS)
    ):
        return "", first
    changed = [n for n, one, other in zip(names, digests, first, strict=True) if one != other]
    return f"output {changed[0]!r} differs in bits from the first replay of these inputs", first


def _digests(outputs: Sequence[Any]) -> list[bytes]:
    return [
        hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8).data, digest_size=16).digest()
        for array in outputs
    ]
