"""Measure a model's cost at each candidate size: dynamic, and with the size fixed."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotc.backends.base import SessionUse
from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.cuda_options import CudaOptions
from aotc.contract.known_providers import CAPTURING
from aotc.contract.manifest.interface import Value
from aotc.contract.manifest.variant import Optimization
from aotc.contract.profile import PluginSpec, Profile
from aotc.engine.device.cuda_place import Settings
from aotc.engine.named_backends import backend_of
from aotc.engine.session import create_session, import_onnxruntime, run
from aotc.engine.worker_pool import Workers
from aotc.errors import AotcError
from aotc.graphs.offline import MODEL, write_optimized
from aotc.learning.captured_runs import CapturedRuns, FixedRun
from aotc.learning.cost_table import CostTable
from aotc.learning.measured_form import in_precision, measured_graph, session_spec
from aotc.passes.base import walk_nodes
from aotc.probing.inputs.generated_fixtures import Hints, generate
from aotc.stages.optimizing.image_layout import is_convolutional
from aotc.stages.tuning.precision_forms import wanted_precision
from aotc.stages.types import SourceModel
from aotc.stages.variant_plan import wanted_in_float32

if TYPE_CHECKING:
    import onnx

_MIN_ROUNDS, _MAX_ROUNDS = 2, 100
# How often static graphs are measured, each time in a new session.
_PASSES = 2
# At how many sizes, about, a first run is compared with a later one.
_REVISITED = 16


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
    """Costs of `source` at every combination of `sizes` of `dims`, in seconds of one run.

    The model runs with the providers, the precision and the options of the first variant of
    `profile`, fused and in half precision where that runs on CUDA here and may be.  Where that
    variant captures CUDA graphs, and this machine can, replays are measured in place of static
    graphs.  The dynamic graph is also measured at the sizes `between`, for one dim, and with
    another size from run to run, as in production.  Sizes that are not `recorded` are left out if
    the model does not run there; the largest recorded one is measured if no larger one remains.
    `others` are the sizes of the other dims; `follows` names the terms of dims that are sums.
    `threads` is the number of threads of a session, `seed` that of the generated inputs.
    About `seconds` are spent on running, not counting session creation.  Raises AOTC-S005 if a size
    does not run, and what the sandbox raises.
    """
    variant = profile.variants[0]
    cuda = profile.cuda_of(variant)
    providers = variant.providers or profile.providers
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
            "precision": wanted_precision(variant, profile),
            "keep_float32": list(wanted_in_float32(variant, profile)),
            "quantized": source.capture.quantized,
            "captures": profile.captures_sizes(variant),
            "cuda_options": encode(cuda),
            "fuses": providers[0] == CAPTURING.name and cuda.fusion == "auto",
        },
        folder=work / "measure",
        where=source.name,
    ).value
    return decode(CostTable, {**result, "source": source.capture.sha256})


def measure_job(request: Json) -> Json:
    """In the worker: optimize once, then time both graphs alternately at every combination."""
    bench = _Bench(request)
    dims: list[str] = request["dims"]
    sizes, firsts = _runnable_sizes(bench, request["sizes"], request["recorded"])
    new_size = _new_size(bench, dims, firsts)
    combinations = list(itertools.product(*(sizes[dim] for dim in dims)))
    at = {dim: sorted({*sizes[dim], *request["between"].get(dim, ())}) for dim in dims}
    points = list(itertools.product(*at.values()))
    # In random order, so that a machine that slows down does not look like a rising cost.
    generator = random.Random(request["seed"])  # noqa: S311
    turns = itertools.chain.from_iterable(
        generator.sample(points, len(points)) for _ in iter(int, 1)
    )
    dynamic: dict[tuple[int, ...], list[float]] = {point: [] for point in points}
    static: dict[tuple[int, ...], list[list[float]]] = {point: [] for point in combinations}
    share = request["seconds"] / (len(combinations) + len(points)) / _PASSES
    # Other work slows a machine down for seconds, by up to a factor of two, and all sizes alike:
    # a run is therefore measured in runs of a reference graph right next to it.
    pace = bench.pace(dict(zip(dims, combinations[len(combinations) // 2], strict=True)))
    paces: list[float] = []
    for chosen in [
        point for _ in range(_PASSES) for point in generator.sample(combinations, len(static))
    ]:
        static[chosen].append([])
        for seconds in bench.static(dict(zip(dims, chosen, strict=True)), share):
            paces.append(next(pace))
            static[chosen][-1].append(seconds / paces[-1])
            # In production sizes change from call to call: what a provider caches of the last one
            # must not help the next.
            point = next(turns)
            dynamic[point].append(bench.dynamic(dict(zip(dims, point, strict=True))) / paces[-1])
    while min(map(len, dynamic.values())) <= _MIN_ROUNDS:
        point = next(turns)
        paces.append(next(pace))
        dynamic[point].append(bench.dynamic(dict(zip(dims, point, strict=True))) / paces[-1])
    runtime = import_onnxruntime()
    # The first run of a session, and the first at a size, only warms up.
    kept = [
        [seconds for session in static[point] for seconds in session[1:]] for point in combinations
    ] + [dynamic[point][1:] for point in points]
    most_common_size = statistics.median(paces)
    figures = [most_common_size * statistics.median(samples) for samples in kept]
    drifts = [drift([session[1:] for session in static[point]]) for point in combinations]
    return {
        "dims": dims,
        "sizes": sizes,
        "static": figures[: len(combinations)],
        "dynamic_sizes": at,
        "dynamic": figures[len(combinations) :],
        "new_size": new_size,
        "noise": min(1.0, statistics.median(map(spread, kept))),
        "drift": min(1.0, statistics.mean(drifts)),
        "backend": f"onnxruntime {runtime.__version__}, {', '.join(bench.providers)}",
        "others": request["others"],
    }


def _runnable_sizes(
    bench: _Bench, sizes: Mapping[str, Sequence[int]], recorded: Mapping[str, Sequence[int]]
) -> tuple[dict[str, list[int]], dict[tuple[int, ...], float]]:
    """`sizes` without those that were never recorded and at which the dynamic graph fails.

    Also the seconds of the first run at each combination.
    """
    largest = {dim: max(recorded[dim][-1], 1) for dim in sizes}
    kept = {dim: {*values, largest[dim]} for dim, values in sizes.items()}
    # It takes the memory and the kernels that others need too, so that only the size is new there.
    bench.dynamic(largest)
    firsts: dict[tuple[int, ...], float] = {}
    for point in itertools.product(*(sorted(values) for values in kept.values())):
        at = dict(zip(sizes, point, strict=True))
        if any(size not in kept[dim] for dim, size in at.items()):
            continue
        try:
            firsts[point] = bench.dynamic(at)
        except AotcError as error:
            guessed = {dim: size for dim, size in at.items() if size not in recorded[dim]}
            if error.code != "AOTC-S005" or not guessed:
                raise
            for dim, size in guessed.items():
                kept[dim].remove(size)
    for dim, values in kept.items():
        if largest[dim] not in sizes[dim] and max(values) > largest[dim]:
            values.remove(largest[dim])
    firsts.pop(tuple(largest.values()), None)
    return {dim: sorted(values) for dim, values in kept.items()}, firsts


def _new_size(bench: _Bench, dims: Sequence[str], firsts: Mapping[tuple[int, ...], float]) -> float:
    """How much longer the first run at a size took than one now: the median over some sizes."""
    if not firsts:
        return 0.0
    some = list(firsts)[:: -(-len(firsts) // _REVISITED)]
    now = [bench.dynamic(dict(zip(dims, point, strict=True))) for point in some]
    return max(
        0.0, statistics.median(firsts[point] - s for point, s in zip(some, now, strict=True))
    )


class _Bench:
    """The dynamic session, and one static session at a time."""

    def __init__(self, request: Json) -> None:
        import onnx

        self._request = request
        self._inputs = [decode(Value, item) for item in request["inputs"]]
        self._hints: Hints = request["hints"]
        plugins = {name: decode(PluginSpec, spec) for name, spec in request["plugins"].items()}
        backends = [backend_of(name, plugins) for name in request["providers"]]
        self.providers = [backend.ort_name for backend in backends]
        self._libraries = {spec.provider: Path(spec.library) for spec in plugins.values()}
        # The level of a portable variant.
        level: Optimization = "extended" if request["providers"] == ["cpu"] else "basic"
        runs = backends[0].probe().runs
        graph = measured_graph(request) if runs else Path(request["graph"])
        write_optimized(graph, level, Path(request["weights"]))
        self._model: onnx.ModelProto = onnx.load(MODEL, load_external_data=False)
        if runs and backends[0].half_by_types:
            in_precision(self._model, request)
        use = SessionUse(
            cuda=decode(CudaOptions, request["cuda_options"]),
            convolutional=is_convolutional(node.op_type for node in walk_nodes(self._model)),
        )
        self._spec = session_spec(backends, request["precision"], use)
        dims = sorted({*request["others"], *request["dims"], *request["follows"]})
        self._captured = (
            CapturedRuns(partial(self._open, self._model), tuple(dims))
            if request["captures"] and runs
            else None
        )
        self._dynamic = self._open(self._model) if self._captured is None else None

    def _open(self, model: onnx.ModelProto, settings: Settings | None = None) -> Any:
        return create_session(
            model.SerializeToString(),
            self._spec,
            providers=self.providers,
            weights_folder=Path(),
            libraries=self._libraries,
            compiles=True,
            threads=self._request["threads"],
            refusal="AOTC-S005",
            settings=settings,
        )

    def static(self, chosen: Mapping[str, int], seconds: float) -> Iterator[float]:
        """Seconds of runs of the graph with `chosen` fixed, for about `seconds`."""
        run_once = self._fixed_run(chosen)
        until = time.perf_counter() + seconds
        for turn in range(_MAX_ROUNDS):
            started = time.perf_counter()
            run_once()
            yield time.perf_counter() - started
            if turn >= _MIN_ROUNDS and time.perf_counter() > until:
                break

    def pace(self, chosen: Mapping[str, int]) -> Iterator[float]:
        """Seconds of each further run of the graph with `chosen` fixed, after one to warm up."""
        run_once = self._fixed_run(chosen)
        run_once()
        while True:
            started = time.perf_counter()
            run_once()
            yield time.perf_counter() - started

    def _fixed_run(self, chosen: Mapping[str, int]) -> FixedRun:
        """One run at `chosen`: a replay where sizes are captured, else of a static session."""
        sizes, given = self._at(chosen)
        if self._captured is not None:
            return self._captured.at(sizes, given)
        opened = self._static(sizes)

        def run_once() -> None:
            run(opened, given, refusal="AOTC-S005")

        return run_once

    def dynamic(self, chosen: Mapping[str, int]) -> float:
        """Seconds of one run of the graph for all sizes."""
        sizes, given = self._at(chosen)
        started = time.perf_counter()
        try:
            if self._captured is not None:
                self._captured.without_graph(given)
            else:
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


def spread(samples: Sequence[float]) -> float:
    """The relative error of a median: half the interquartile range by the root of the count."""
    if len(samples) < 3:
        return 0.0
    low, middle, high = statistics.quantiles(samples, n=4)
    return float((high - low) / 2 / middle / len(samples) ** 0.5)


def drift(sessions: Sequence[Sequence[float]]) -> float:
    """The relative error of a mean of sessions: half the span of their medians, to the middle.

    Runs in one session are close in time, so what disturbs some of them disturbs all.
    """
    medians = [statistics.median(session) for session in sessions]
    return (max(medians) - min(medians)) / (max(medians) + min(medians))
