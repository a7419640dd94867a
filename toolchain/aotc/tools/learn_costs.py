"""What a model costs at each candidate size: measured, stored, and read between sizes."""

from __future__ import annotations

import copy
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import onnx

from aotc.base.errors import AotcError
from aotc.base.records import field, record
from aotc.graph.passes.with_sizes import FixDims
from aotc.graph.view import every_node
from aotc.pipeline.half import to_half, why_left
from aotc.pipeline.optimize import FUSED, fusion_job, write_weights
from aotc.pipeline.tune import wanted_precision
from aotc.pipeline.types import SourceModel, wanted_in_float32
from aotc.precision.half_conversion import HALF_TYPES
from aotc.providers.base import Backend, SessionUse
from aotc.providers.named_backends import backend_of
from aotc.session.device.cuda_place import CudaPlace, Settings, open_capturing
from aotc.session.inference import MODEL, write_optimized
from aotc.session.sessions import create_session, import_onnxruntime, run
from aotc.session.worker_pool import Workers
from aotc.sizes.inputs.fixtures import Hints, generate
from aotc.spec.codec import Bounds, Json, Problem, decode, encode
from aotc.spec.payload import Value
from aotc.spec.precision import Precision, WantedPrecision
from aotc.spec.profile import PluginSpec, Profile, Seconds
from aotc.spec.providers import CAPTURING, CudaOptions
from aotc.spec.shapes import sizes_in_words
from aotc.spec.variant import CapturingSessions, GraphCapture, Optimization, SessionSpec

if TYPE_CHECKING:
    import onnxruntime as ort


# Runs of one dynamic session with and without CUDA graphs, to measure what sizes cost.


# One run at the sizes that it was made for.
FixedRun = Callable[[], None]
# Of both, the most that may be stated: no size may be dropped while it is measured.
_MAX_COUNT = 1024
_MAX_BYTES = 2**53 - 1


class CapturedRuns:
    """Captures sizes on CUDA, and replays them."""

    def __init__(
        self,
        opener: Callable[[Settings], ort.InferenceSession],
        dims: tuple[str, ...],
        sessions: CapturingSessions = "one",
    ) -> None:
        """`opener` creates a session; `dims` are all that sizes name.

        Raises AOTC-S005 if no graph can be captured, and R025 and I019 without a GPU.
        """
        self._dims = dims
        graphs = GraphCapture(
            sizes=(dict.fromkeys(dims, 0),),
            max_count=_MAX_COUNT,
            max_bytes=_MAX_BYTES,
            sessions=sessions,
        )
        self._runner = _measured(
            lambda: open_capturing(graphs, CudaPlace(), opener, "the measured graph")
        )

    def at(self, sizes: Mapping[str, int], given: Mapping[str, Any]) -> FixedRun:
        """Capture a run of the inputs `given`, of `sizes`, once; the result replays it.

        Raises AOTC-S005 if the size does not run, or is not kept.
        """
        wanted = {dim: sizes.get(dim, 0) for dim in self._dims}
        if wanted not in self._runner.captured:
            _measured(lambda: self._runner.capture(given, sizes))
        if wanted not in self._runner.captured:
            raise AotcError(
                "AOTC-S005",
                "the captured size was dropped",
                where=sizes_in_words(wanted),
                found="; ".join(finding.what for finding in self._runner.findings),
            )

        def replay() -> None:
            self._runner.run(given, None, sizes)

        return replay

    def without_graph(self, given: Mapping[str, Any]) -> None:
        """Run the inputs `given` as a call at sizes that are not captured.

        Raises AOTC-S005 if they do not run.
        """
        _measured(lambda: self._runner.run_without_graph(given))


def _measured(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except AotcError as error:
        if error.code not in ("AOTC-R024", "AOTC-R005", "AOTC-M004"):
            raise
        raise AotcError("AOTC-S005", error.what, where=error.where, found=error.found) from None


# A cost table as arrays: exact at the measured sizes, linear between them.


Floats = npt.NDArray[np.floating[Any]]


class Costs:
    """Seconds by the sizes of one or two dims."""

    def __init__(self, table: CostTable) -> None:
        self.table = table
        self.dims = table.dims
        self.axes = tuple(np.asarray(table.sizes[dim], float) for dim in table.dims)
        shape = tuple(len(axis) for axis in self.axes)
        self.static: Floats = np.asarray(table.static, float).reshape(shape)
        at = table.dynamic_sizes_or_all()
        self.dynamic_axes = tuple(np.asarray(at[dim], float) for dim in table.dims)
        self.dynamic: Floats | None = None
        if table.dynamic:
            shape = tuple(len(axis) for axis in self.dynamic_axes)
            self.dynamic = np.asarray(table.dynamic, float).reshape(shape)

    def within(self, low: Sequence[int], high: Sequence[int]) -> Costs:
        """The same costs with only the static sizes that calls from `low` to `high` may need.

        For each dim these range from the smallest size that holds the smallest call to the
        smallest one that holds the largest call.
        """
        found = copy.copy(self)
        spans = [
            slice(int(np.searchsorted(axis, smallest)), int(np.searchsorted(axis, largest)) + 1)
            for axis, smallest, largest in zip(self.axes, low, high, strict=True)
        ]
        found.axes = tuple(axis[span] for axis, span in zip(self.axes, spans, strict=True))
        found.static = self.static[tuple(spans)]
        return found

    def dynamic_seconds(self, sizes: Mapping[str, int]) -> float:
        """Seconds of the dynamic graph at `sizes`, linear (in two dims bilinear) between measured.

        Below the smallest and above the largest measured size, the cost of that size is used.
        """
        if self.dynamic is None:
            raise ValueError("the table has no dynamic costs")
        values = self.dynamic
        for dim, axis in zip(self.dims, self.dynamic_axes, strict=True):
            values = _between(values, axis, float(sizes[dim]))
        return float(values)

    def indices(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """For each dim, the index of the smallest measured size that holds `sizes`."""
        return tuple(
            int(np.searchsorted(axis, sizes[dim]))
            for dim, axis in zip(self.dims, self.axes, strict=True)
        )


def _between(values: Floats, axis: Floats, size: float) -> Floats:
    """`values` interpolated at `size` along their first axis."""
    size = min(max(size, axis[0]), axis[-1])
    upper = int(np.searchsorted(axis, size))
    if axis[upper] == size:
        return np.asarray(values[upper])
    share = (size - axis[upper - 1]) / (axis[upper] - axis[upper - 1])
    return np.asarray(values[upper - 1] * (1 - share) + values[upper] * share)


# The cost of a model at each size: measured, and stored as `aotc.costs/1`.


@record
class CostTable:
    """Seconds of one run at every combination of sizes, row-major in the order of `dims`.

    `static` are runs of graphs with the combinations of `sizes` fixed.  `dynamic` are runs of the
    graph for all sizes, at `dynamic_sizes`, which may lie between the others: that shows whether a
    backend that is fast at multiples of 16 is slow elsewhere.  Empty if not measured.  The first
    run at a size is not in them, but in `new_size`, the median over sizes of what it takes more.
    """

    schema: Literal["aotc.costs/1"] = "aotc.costs/1"
    dims: Annotated[tuple[str, ...], Bounds(1, 2)]
    sizes: Annotated[Mapping[str, tuple[Annotated[int, Bounds(1)], ...]], "measured, rising"]
    static: tuple[Seconds, ...]
    dynamic_sizes: Annotated[
        Mapping[str, tuple[Annotated[int, Bounds(0)], ...]], "measured, rising; none: as `sizes`"
    ] = field(default_factory=dict)
    dynamic: tuple[Seconds, ...] = ()
    new_size_seconds: Annotated[
        Seconds, "how much longer the first call of a size takes, where sizes are not fixed"
    ] = 0.0
    noise: Annotated[float, Bounds(0, 1), "by how much a figure may be off, as a share"] = 0.0
    drift: Annotated[
        float, Bounds(0, 1), "by how much sessions of one size differ: other work on the machine"
    ] = 0.0
    backend: Annotated[str, "what ran, with versions"] = ""
    model_sha256: Annotated[str, "sha256 of the model; empty if unknown"] = ""
    others: Annotated[Mapping[str, int], "sizes of the other dims"] = field(default_factory=dict)

    def problems(self) -> list[Problem]:
        """Sizes and figures that do not match each other."""
        found = self._table_problems("sizes", self.sizes, "static", self.static)
        if self.dynamic:
            found += self._table_problems(
                "dynamic_sizes", self.dynamic_sizes_or_all(), "dynamic", self.dynamic
            )
        return found

    def dynamic_sizes_or_all(self) -> Mapping[str, tuple[int, ...]]:
        """The sizes at which `dynamic` was measured."""
        return self.dynamic_sizes or self.sizes

    def _table_problems(
        self,
        field_name: str,
        sizes: Mapping[str, tuple[int, ...]],
        figures_name: str,
        figures: tuple[float, ...],
    ) -> list[Problem]:
        if set(sizes) != set(self.dims):
            return [Problem(field_name, "do not match the dims")]
        for dim, listed in sizes.items():
            if not listed or list(listed) != sorted(set(listed)):
                return [Problem(f"{field_name}.{dim}", "are missing, or not rising")]
        combinations = math.prod(len(listed) for listed in sizes.values())
        if len(figures) != combinations:
            text = f"{len(figures)} figures for {combinations} combinations"
            return [Problem(figures_name, text)]
        return []


# Measure a model's cost at each candidate size: dynamic, and with the size fixed.


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
        "aotc.tools.learn_costs:measure_job",
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
    return decode(CostTable, {**result, "model_sha256": source.capture.sha256})


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
        "new_size_seconds": new_size,
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
            operators=tuple(node.op_type for node in every_node(self._model)),
        )
        self._spec = session_spec(backends, request["precision"], use)
        dims = sorted({*request["others"], *request["dims"], *request["follows"]})
        self._captured = (
            CapturedRuns(
                partial(self._open, self._model), tuple(dims), "each" if use.apart else "one"
            )
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
            error.where = sizes_in_words(sizes)
            raise
        return time.perf_counter() - started

    def _at(self, chosen: Mapping[str, int]) -> tuple[dict[str, int], Mapping[str, Any]]:
        sizes = {**self._request["others"], **chosen}
        for dim, terms in self._request["follows"].items():
            sizes[dim] = sum(sizes[term] for term in terms)
        return sizes, generate(self._inputs, sizes, self._hints, self._request["seed"])

    def _static(self, sizes: Mapping[str, int]) -> Any:
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


# The form of a model whose costs are measured: what a build would run, as far as it costs.


def measured_graph(request: Json) -> Path:
    """The graph, fused for CUDA as a build would if the request says so and it can be.

    Raises AOTC-O011 if the library of the rules is not installed.
    """
    graph = Path(request["graph"])
    if not request["fuses"]:
        return graph
    found = fusion_job({**request, "backend": request["providers"][0]})
    return Path(FUSED) if found["passes"] and not found["why_not"] else graph


def in_precision(model: onnx.ModelProto, request: Json) -> None:
    """Change `model` to the half precision that is asked for, if any, but for `keep_float32`.

    It was just optimized: its weights are in the working directory, and are written there.  No
    activation is observed, so that single nodes that a build keeps in float32 for their values are
    measured in half.  A model that has nothing to change stays.
    """
    wanted = request["precision"]
    if wanted not in HALF_TYPES or request["quantized"] or why_left(model.graph, wanted):
        return
    asked = {
        **request,
        "to": wanted,
        "stored_only": False,
        "failing": [],
        "source": request["graph"],
        "backend": request["providers"][0],
        "references": [],
        "where": "the measured graph",
    }
    try:
        to_half(model, asked)
    except AotcError as error:
        if error.code != "AOTC-N012":
            raise
        return
    write_weights(model)


def session_spec(
    backends: Sequence[Backend], precision: WantedPrecision, use: SessionUse
) -> SessionSpec:
    """The session of all `backends`; one without the precision computes in its exact one.

    Integers are not measured: which sizes are worth a variant is decided on the model's own types,
    as costs in integers differ by a factor at all sizes.  Nor is what `auto` will choose known.
    """
    options: dict[str, Mapping[str, str]] = {}
    for backend in backends:
        own: Precision = "keep" if precision == "auto" else backend.computes_in(precision)
        options |= backend.session("all", own, use).provider_options
    return SessionSpec(optimization="all", provider_options=options)
