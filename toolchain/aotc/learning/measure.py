"""Measure what a model costs at each candidate size: dynamic, and with the size written in."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotc.backends.base import Backend
from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.manifest.interface import Value
from aotc.contract.manifest.variant import Optimization, SessionSpec
from aotc.contract.profile import PluginSpec, Profile
from aotc.contract.profile_terms import Precision
from aotc.engine.named_backends import backend_of
from aotc.engine.session import create_session, import_onnxruntime, run
from aotc.engine.worker_pool import Workers
from aotc.errors import AotcError
from aotc.graphs.offline import MODEL, write_optimized
from aotc.learning.cost_table import CostTable
from aotc.probing.inputs.generated_fixtures import Hints, generate
from aotc.stages.types import SourceModel

if TYPE_CHECKING:
    import onnx

_LEAST_ROUNDS, _MOST_ROUNDS = 2, 100
# Static graphs are measured so often, each time in a session of their own.
_PASSES = 2


def measure(
    source: SourceModel,
    dims: Sequence[str],
    sizes: Mapping[str, Sequence[int]],
    between: Mapping[str, Sequence[int]],
    recorded: Mapping[str, Sequence[int]],
    others: Mapping[str, int],
    follows: Mapping[str, Sequence[str]],
    *,
    seconds: float,
    threads: int | None,
    seed: int,
    profile: Profile,
    workers: Workers,
    work: Path,
) -> CostTable:
    """Costs of `source` at every combination of `sizes` of `dims`.

    It runs with the providers and the precision of `profile`'s first variant.

    The dynamic graph is also measured at the sizes `between`, of one dim; from run to run at
    another size, as production would.  Of `sizes` those that are not `recorded` are left out where
    the model does not run; the largest recorded one is measured where no larger one is left.
    `others` are the sizes of the other dims; `follows` names the terms of dims that are sums.
    About `seconds` are spent on running, beside creating sessions.  Raises AOTC-S005 where a size
    does not run, and what the sandbox raises.
    """
    providers = profile.variants[0].providers or profile.providers
    result = workers.run(
        "aotc.learning.measure:measure_job",
        {
            "graph": str(source.graph),
            "weights": str(source.weights),
            "inputs": [encode(value) for value in source.inputs],
            "hints": source.hints,
            "dims": list(dims),
            "sizes": {dim: list(values) for dim, values in sizes.items()},
            "between": {dim: list(values) for dim, values in between.items()},
            "recorded": {dim: list(values) for dim, values in recorded.items()},
            "others": dict(others),
            "follows": {dim: list(terms) for dim, terms in follows.items()},
            "seconds": seconds,
            "threads": threads,
            "seed": seed,
            "providers": list(providers),
            "plugins": encode(dict(profile.plugins)),
            "precision": profile.precision,
        },
        folder=work / "measure",
        where=source.name,
    ).value
    return decode(CostTable, {**result, "source": source.capture.sha256})


def measure_job(request: Json) -> Json:
    """In the worker: optimize once, then time both graphs by turns at every combination."""
    bench = _Bench(request)
    dims: list[str] = request["dims"]
    sizes = _that_run(bench, request["sizes"], request["recorded"])
    combinations = list(itertools.product(*(sizes[dim] for dim in dims)))
    at = {dim: sorted({*sizes[dim], *request["between"].get(dim, ())}) for dim in dims}
    points = list(itertools.product(*at.values()))
    # In a drawn order, so that a machine that slows down does not look like a cost that grows.
    drawn = random.Random(request["seed"])  # noqa: S311
    turns = itertools.chain.from_iterable(drawn.sample(points, len(points)) for _ in iter(int, 1))
    dynamic: dict[tuple[int, ...], list[float]] = {point: [] for point in points}
    static: dict[tuple[int, ...], list[list[float]]] = {each: [] for each in combinations}
    share = request["seconds"] / (len(combinations) + len(points)) / _PASSES
    # Other work makes a machine slower by the second, up to twice, and all sizes alike: a run is
    # counted in runs of one graph at one size, right beside it.
    pace = bench.pace(dict(zip(dims, combinations[len(combinations) // 2], strict=True)))
    paces: list[float] = []
    for chosen in [
        each for _ in range(_PASSES) for each in drawn.sample(combinations, len(static))
    ]:
        static[chosen].append([])
        for seconds in bench.static(dict(zip(dims, chosen, strict=True)), share):
            paces.append(next(pace))
            static[chosen][-1].append(seconds / paces[-1])
            # Production's sizes change from call to call: what a provider keeps of the last one
            # must not help the next.
            point = next(turns)
            dynamic[point].append(bench.dynamic(dict(zip(dims, point, strict=True))) / paces[-1])
    while min(map(len, dynamic.values())) <= _LEAST_ROUNDS:
        point = next(turns)
        paces.append(next(pace))
        dynamic[point].append(bench.dynamic(dict(zip(dims, point, strict=True))) / paces[-1])
    runtime = import_onnxruntime()
    # The first run of a session, and at a size, warms up.
    kept = [
        [seconds for session in static[each] for seconds in session[1:]] for each in combinations
    ] + [dynamic[each][1:] for each in points]
    usual = statistics.median(paces)
    figures = [usual * statistics.median(each) for each in kept]
    apart = [drift([each[1:] for each in static[point]]) for point in combinations]
    return {
        "dims": dims,
        "sizes": sizes,
        "static": figures[: len(combinations)],
        "dynamic_sizes": at,
        "dynamic": figures[len(combinations) :],
        "noise": min(1.0, statistics.median(map(spread, kept))),
        "drift": min(1.0, statistics.mean(apart)),
        "backend": f"onnxruntime {runtime.__version__}, {', '.join(bench.providers)}",
        "others": request["others"],
    }


def _that_run(
    bench: _Bench, sizes: Mapping[str, Sequence[int]], recorded: Mapping[str, Sequence[int]]
) -> dict[str, list[int]]:
    """`sizes` without those that were never recorded and at which the dynamic graph fails."""
    largest = {dim: max(recorded[dim][-1], 1) for dim in sizes}
    kept = {dim: {*values, largest[dim]} for dim, values in sizes.items()}
    for point in itertools.product(*(sorted(values) for values in kept.values())):
        at = dict(zip(sizes, point, strict=True))
        if any(size not in kept[dim] for dim, size in at.items()):
            continue
        try:
            bench.dynamic(at)
        except AotcError as error:
            guessed = {dim: size for dim, size in at.items() if size not in recorded[dim]}
            if error.code != "AOTC-S005" or not guessed:
                raise
            for dim, size in guessed.items():
                kept[dim].remove(size)
    for dim, values in kept.items():
        if largest[dim] not in sizes[dim] and max(values) > largest[dim]:
            values.remove(largest[dim])
    return {dim: sorted(values) for dim, values in kept.items()}


class _Bench:
    """The dynamic session, and a static one at a time."""

    def __init__(self, request: Json) -> None:
        import onnx

        self._request = request
        self._inputs = [decode(Value, item) for item in request["inputs"]]
        self._hints: Hints = request["hints"]
        plugins = {name: decode(PluginSpec, each) for name, each in request["plugins"].items()}
        backends = [backend_of(name, plugins) for name in request["providers"]]
        self.providers = [backend.ort_name for backend in backends]
        self._libraries = {spec.provider: Path(spec.library) for spec in plugins.values()}
        self._spec = _session_spec(backends, request["precision"])
        # As a portable variant has it.
        level: Optimization = "extended" if request["providers"] == ["cpu"] else "basic"
        write_optimized(Path(request["graph"]), level, Path(request["weights"]))
        self._model: onnx.ModelProto = onnx.load(MODEL, load_external_data=False)
        self._dynamic = self._open(self._model)

    def _open(self, model: onnx.ModelProto) -> Any:
        return create_session(
            model.SerializeToString(),
            self._spec,
            providers=self.providers,
            weights_folder=Path(),
            libraries=self._libraries,
            compiles=True,
            threads=self._request["threads"],
            refusal="AOTC-S005",
        )

    def static(self, chosen: Mapping[str, int], seconds: float) -> Iterator[float]:
        """Seconds of runs of a graph with `chosen` written in, for about `seconds`."""
        sizes, given = self._at(chosen)
        opened = self._static(sizes)
        until = time.perf_counter() + seconds
        for turn in range(_MOST_ROUNDS):
            started = time.perf_counter()
            run(opened, given, refusal="AOTC-S005")
            yield time.perf_counter() - started
            if turn >= _LEAST_ROUNDS and time.perf_counter() > until:
                break

    def pace(self, chosen: Mapping[str, int]) -> Iterator[float]:
        """Seconds of each next run of a graph with `chosen` written in; the first warms up."""
        sizes, given = self._at(chosen)
        opened = self._static(sizes)
        run(opened, given, refusal="AOTC-S005")
        while True:
            started = time.perf_counter()
            run(opened, given, refusal="AOTC-S005")
            yield time.perf_counter() - started

    def dynamic(self, chosen: Mapping[str, int]) -> float:
        """Seconds of one run of the graph that takes all sizes."""
        sizes, given = self._at(chosen)
        started = time.perf_counter()
        try:
            run(self._dynamic, given, refusal="AOTC-S005")
        except AotcError as error:
            error.where = ", ".join(f"{dim}={size}" for dim, size in sizes.items())
            raise
        return time.perf_counter() - started

    def _at(self, chosen: Mapping[str, int]) -> tuple[dict[str, int], Mapping[str, Any]]:
        sizes = {**self._request["others"], **chosen}
        for dim, terms in self._request["follows"].items():
            sizes[dim] = sum(sizes[term] for term in terms)
        return sizes, generate(self._inputs, sizes, self._hints, self._request["seed"])

    def _static(self, sizes: Mapping[str, int]) -> Any:
        import onnx

        from aotc.passes.fix_dims import FixDims

        fixed = onnx.ModelProto()
        fixed.CopyFrom(self._model)
        FixDims(sizes=sizes).apply(fixed)
        return self._open(fixed)


def _session_spec(backends: Sequence[Backend], precision: Precision) -> SessionSpec:
    """Of a session with all `backends`; who lacks the precision computes in the exact one."""
    options: dict[str, Mapping[str, str]] = {}
    for backend in backends:
        own: Precision = backend.computes_in(precision)
        options |= backend.session("all", own).provider_options
    return SessionSpec(optimization="all", provider_options=options)


def spread(samples: Sequence[float]) -> float:
    """Half the interquartile range by the root of the count, to the median: of a median's error."""
    if len(samples) < 3:
        return 0.0
    low, middle, high = statistics.quantiles(samples, n=4)
    return float((high - low) / 2 / middle / len(samples) ** 0.5)


def drift(sessions: Sequence[Sequence[float]]) -> float:
    """Half the span of several sessions' medians, to the middle: of the error of their mean.

    Runs in one session lie close in time, so that what disturbs some of them disturbs all.
    """
    medians = [statistics.median(each) for each in sessions]
    return (max(medians) - min(medians)) / (max(medians) + min(medians))
