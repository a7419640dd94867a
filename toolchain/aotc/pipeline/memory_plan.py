"""The memory plan of a variant: of the graph that ONNX Runtime runs, at sizes tried and not tried.

A profiled call at the sizes of each fixture gives the order of the nodes and every shape: the one
that was observed, else one of this worker's, which opens the variant once more.  The graph is the
one that ONNX Runtime's optimizer makes at load, where it does.  What follows is
`graph/allocation.py`, `workspace.py` and `arena.py`, which know no ONNX Runtime.  A rule for each
size in terms of the dims (`graph/polynomials.py`) gives plans at sizes that no call had.

The values of nodes on a GPU are in an arena there, which has a plan of its own by the same rules:
its weights come first, whose sizes decide what chunks are left.  ONNX Runtime's order of weights is
another in each process; here it is that of the graph.  What goes from one memory to the other is
counted.  The workspace of a GPU's kernels is not planned.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from aotc.base.errors import AotcError
from aotc.base.records import field, record, replace
from aotc.graph import values
from aotc.graph.allocation import (
    TO_DEVICE,
    TO_HOST,
    VIEWS,
    Buffers,
    Frame,
    Node,
    Run,
    Values,
    plan_buffers,
    simulate,
    values_on_gpu,
)
from aotc.graph.arena import Arena, rounded
from aotc.graph.polynomials import Point, Polynomial, fitted, total
from aotc.graph.values import Data
from aotc.graph.view import captured_values, every_node, made_values, subgraphs
from aotc.graph.workspace import Call, Integers, pack, packed_weights, workspace
from aotc.host.cpu import usable_cores
from aotc.pipeline.half import read_tensor
from aotc.precision.node_comparison import BLOCKED_DOMAIN
from aotc.session.counted_session import COUNTED
from aotc.session.inference import SHAPES_ALONE, with_outputs
from aotc.session.node_times import read_events
from aotc.session.padding import Padder
from aotc.session.sessions import create_session, run
from aotc.spec.buckets import largest_first
from aotc.spec.codec import Json, decode, encode
from aotc.spec.memory import (
    AliveBuffer,
    CurvePoint,
    MemoryTerm,
    PlannedCapture,
    PlannedCopies,
    PlannedDevice,
    PlannedMemory,
    PlannedRun,
)
from aotc.spec.payload import Value
from aotc.spec.providers import ARENA_GROWTH, CAPTURING, CPU, EXACTLY
from aotc.spec.shapes import Domain, Padding
from aotc.spec.variant import SessionSpec

_WRITTEN: Final = "loaded.onnx"
_KERNEL: Final = "_kernel_time"
# What ONNX Runtime adds to the names of nodes that it makes.
_NUMBERED: Final = re.compile(r"_token_\d+$")
_CONTROL_FLOW: Final = frozenset({"If", "Loop", "Scan"})
# Buffers that are named at the peak, and points of the curve.
_NAMED: Final = 8
_POINTS: Final = 9
# Of the way between sizes, where a limit is looked for.
_STEPS: Final = 1 << 12
_EIGHT_BITS: Final = frozenset({onnx.TensorProto.INT8, onnx.TensorProto.UINT8})
_WIDTHS: Final = {"float": 4, "double": 8, "bool": 1, "string": 0}
Shape = tuple[int, ...]


@record(kw_only=False)
class _Event:
    """One execution of one node in a profile: shapes and widths of what it made."""

    name: str
    op: str
    provider: str
    index: int
    start: float
    end: float
    made: tuple[tuple[int, Shape], ...]


@record(kw_only=False)
class _Graph:
    """A graph in the order it runs, with the rules of its values' shapes; inner graphs by node."""

    protos: tuple[onnx.NodeProto, ...]
    # The same as ONNX Runtime numbers them.
    listed: tuple[onnx.NodeProto, ...]
    buffers: Buffers
    widths: Mapping[str, int]
    fixed: Mapping[str, Shape]
    inner: Mapping[int, tuple[_Graph, ...]]
    # By value, its shape in each of the calls that were made.
    seen: Mapping[str, tuple[Shape | None, ...]]
    threads: int
    # Weights of a graph around it.
    captured: frozenset[str] = frozenset()
    # Constants of 8 bits.
    integers: Mapping[str, Integers] = field(default_factory=dict)
    # Of what nodes make, of inputs and of weights, what is in the GPU's memory; and the inputs.
    on_gpu: frozenset[str] = frozenset()
    inputs: tuple[str, ...] = ()

    def frame(self, shape_of: Callable[[_Graph, str], Shape | None]) -> Frame:
        """What it takes of the host if its values have the shapes that `shape_of` says.

        Outputs on the GPU are there as well: they are copied to the host when the nodes are done.
        """
        made = {n for node in self.buffers.nodes for n in node.makes if n}
        shapes = {**self.fixed, **{name: shape_of(self, name) or () for name in self.seen}}
        here = made - (self.on_gpu - self.buffers.outputs)
        return Frame(
            self.buffers,
            {name: math.prod(shapes[name]) * self.widths.get(name, 0) for name in here},
            {
                index: needed
                for index, proto in enumerate(self.protos)
                if not self.buffers.nodes[index].on_gpu
                and (needed := workspace(self._call(proto, shapes)))
            },
            {
                index: tuple(each.frame(shape_of) for each in inner)
                for index, inner in self.inner.items()
            },
            not self.packed(self.captured),
        )

    def device_frame(
        self, shape_of: Callable[[_Graph, str], Shape | None], *, bound: bool = False
    ) -> Frame:
        """The same of the GPU, without workspace; `bound`: the inputs are elsewhere."""
        made = {n for node in self.buffers.nodes for n in node.makes if n} & self.on_gpu
        return Frame(
            self.buffers,
            {name: self.bytes_of(name, shape_of) for name in made},
            {},
            inputs={} if bound else self.copied_inputs(shape_of),
        )

    def copied_inputs(self, shape_of: Callable[[_Graph, str], Shape | None]) -> dict[str, int]:
        """Bytes of each input that is copied to the GPU."""
        return {name: self.bytes_of(name, shape_of) for name in self.inputs}

    def capture(self, shape_of: Callable[[_Graph, str], Shape | None], arena: Arena) -> None:
        """Run bound calls in `arena`; the outputs stay there, as those of a captured size do."""
        frame = self.device_frame(shape_of, bound=True)
        block = arena.allocate(simulate(frame, arena).block)
        for name in self.device_outputs:
            arena.allocate(frame.bytes_of[name])
        arena.release(block)

    @property
    def device_outputs(self) -> list[str]:
        """The outputs that nodes make on the GPU: one may be a weight as well."""
        made = (name for node in self.buffers.nodes for name in node.makes)
        return sorted(self.buffers.outputs & self.on_gpu & set(made))

    def bytes_of(self, name: str, shape_of: Callable[[_Graph, str], Shape | None]) -> int:
        """Bytes of a value."""
        return math.prod(shape_of(self, name) or ()) * self.widths.get(name, 0)

    def _call(self, node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> Call:
        return Call(
            node,
            [shapes.get(name, ()) for name in node.input],
            [shapes.get(name, ()) for name in node.output],
            [self.widths.get(name, 0) for name in node.output],
            [self.widths.get(name, 0) for name in node.input],
            self.threads,
            self.integers,
        )

    def arena(self, constants: frozenset[str]) -> Arena:
        """The arena of a session that was just opened, with what kernels packed into it."""
        arena = Arena()
        for node in self.listed:
            if not self._is_on_gpu(node):
                pack(self._call(node, self.fixed), constants, arena)
        return arena

    def _is_on_gpu(self, node: onnx.NodeProto) -> bool:
        return any(name in self.on_gpu for name in node.output if name)

    def packed(self, constants: frozenset[str]) -> int:
        """Bytes of all packed weights."""
        return sum(
            packed_weights(self._call(node, self.fixed), constants)
            for node in self.protos
            if not self._is_on_gpu(node)
        )

    def with_inputs(self, calls: Sequence[Mapping[str, Data]]) -> _Graph:
        """With the shapes that inputs have in `calls`, and those that are copied to a GPU."""
        arrays: dict[str, list[Any]] = {}
        for name in calls[0]:
            given = [call.get(name) for call in calls]
            if all(isinstance(each, np.ndarray) and each.dtype.kind not in "OSU" for each in given):
                arrays[name] = given
        return replace(
            self,
            inputs=tuple(name for name in arrays if name in self.on_gpu),
            widths={**self.widths, **{name: each[0].itemsize for name, each in arrays.items()}},
            seen={**self.seen, **{n: tuple(a.shape for a in each) for n, each in arrays.items()}},
        )

    def everywhere(self) -> Iterator[_Graph]:
        """This graph and all inner ones."""
        yield self
        for inner in self.inner.values():
            for each in inner:
                yield from each.everywhere()


def plan_job(request: Json) -> Json:
    """In a worker of its own: the plan of the variant that `request` describes.

    Beside what `observe_job` takes, `domain` is that of the variant, and `limit` bytes in use at
    which the curve has a point, the first size that is above it.  `seen` are bytes that were in
    use, by fixture: by as much as a plan is below one of them, its sizes are above it earlier.
    """
    inputs = [decode(Value, item) for item in request["inputs"]]
    domain = decode(Domain, request["domain"])
    padder = Padder(inputs, decode(Padding, request["padding"]) if request["padding"] else None)
    calls: list[tuple[str, Mapping[str, int], Mapping[str, Data]]] = []
    for reference in request["references"]:
        given = {name: values.load(Path(path)) for name, path in reference["inputs"].items()}
        sizes, wanted = reference["sizes"], reference["wanted"]
        if wanted != sizes:
            given = padder.pad(given, sizes, wanted).inputs
        calls.append((reference["name"], wanted, given))
    observed = {each["name"]: Path(each["profile"]) for each in request["references"]}
    return encode(planned(request, inputs, domain, calls, observed))


def planned(
    request: Json,
    inputs: Sequence[Value],
    domain: Domain,
    calls: Sequence[tuple[str, Mapping[str, int], Mapping[str, Data]]],
    observed: Mapping[str, Path] | None = None,
) -> PlannedMemory:
    """The plan at the sizes of `calls` (name, sizes, arrays) and over `domain`.

    `request` is as `variant_request` makes it; `observed` are files with the profile of one call of
    that name, where they are there.  The working directory is written to.
    """
    providers: Sequence[str] = request["providers"]
    if request["contexts"] or not COUNTED.issuperset(providers):
        return PlannedMemory(
            why_not="plans are made of nodes that the CPU provider or CUDA runs, and of no others",
            elsewhere=True,
        )
    model, weights, runs, made_calls = _profiled(request, inputs, domain, calls, observed)
    if len(runs) < len(made_calls):
        return PlannedMemory(why_not="the profile of the session does not hold all of its runs")
    return plan_of(request, model, weights, domain, made_calls, runs)


def plan_of(
    request: Json,
    model: onnx.ModelProto,
    weights: Path,
    domain: Domain,
    calls: Sequence[tuple[str, Mapping[str, int], Mapping[str, Data]]],
    runs: Sequence[Sequence[_Event]],
) -> PlannedMemory:
    """The plan of the graph `model` as it was run: `runs` are the nodes of each of `calls`.

    Calls without a name only tell dims apart.
    """
    _name_inlined(model.graph, runs[0])
    spec = decode(SessionSpec, request["session"])
    points = [sizes for _, sizes, _ in calls]
    rules = _Rules(points, domain)
    threads = spec.threads or usable_cores() or 1
    graph = _read(model, weights, runs, threads, request["providers"], rules)
    if graph is None:
        return PlannedMemory(
            why_not="nodes of the profile are not those of the graph that ONNX Runtime wrote"
        )
    if graph.on_gpu and graph.inner:
        return PlannedMemory(
            why_not="graphs of control flow are not planned on CUDA", elsewhere=True
        )
    graph = graph.with_inputs([arrays for _, _, arrays in calls])
    constants = frozenset(tensor.name for tensor in model.graph.initializer)

    def at(sizes: Mapping[str, int]) -> Run:
        return simulate(graph.frame(rules.at(sizes)), graph.arena(constants))

    curve = {tuple(sizes.items()): at(sizes).peak for sizes in _diagonal(domain)}
    if request.get("limit") is not None and curve:
        seen = request.get("seen", {})
        tried = [(seen[name], at(sizes).peak) for name, sizes, _ in calls if name in seen]
        limit = request["limit"] / max([1.0, *(most / plan for most, plan in tried if plan)])
        if above := _first_above(domain, limit, lambda sizes: at(sizes).peak):
            curve[tuple(above.items())] = at(above).peak
    called = {name: sizes for name, sizes, _ in calls if name}
    wanted = [*called.items()]
    corners = [domain.corner(which) for which in ("least", "opt", "max")] if domain.dims else []
    wanted += [("", sizes) for sizes in corners if sizes not in called.values()]
    largest = corners[-1] if corners else points[0]
    live, unknown = rules.live(graph, at(largest))
    return replace(
        _kinds(graph),
        mapped_bytes=_weight_bytes(model, external=True),
        copied_bytes=_weight_bytes(model, external=False),
        packed_bytes=sum(each.packed(constants) for each in graph.everywhere()),
        at=tuple(_planned_run(name, sizes, at(sizes)) for name, sizes in wanted),
        live=live,
        unknown=unknown,
        curve=_points(curve),
        device=_on_device(request, spec, model, graph, rules, domain, wanted),
        copies=tuple(_copies(graph, rules, [sizes for _, sizes in wanted])),
    )


def _points(curve: Mapping[tuple[tuple[str, int], ...], int]) -> tuple[CurvePoint, ...]:
    return tuple(CurvePoint(sizes=dict(sizes), bytes=peak) for sizes, peak in sorted(curve.items()))


# The arena of a GPU, and what goes to it and comes from it.


def _on_device(
    request: Json,
    spec: SessionSpec,
    model: onnx.ModelProto,
    graph: _Graph,
    rules: _Rules,
    domain: Domain,
    wanted: Sequence[tuple[str, Mapping[str, int]]],
) -> PlannedDevice | None:
    """The plan of the GPU; None if nothing is there."""
    if not graph.on_gpu:
        return None
    grows = spec.provider_options.get(CAPTURING.ort_name, {}).get(ARENA_GROWTH) != EXACTLY
    weights = [
        _tensor_bytes(tensor) for tensor in model.graph.initializer if tensor.name in graph.on_gpu
    ]
    weights_bytes = sum(map(rounded, weights))

    def loaded(*, grows: bool = grows) -> Arena:
        """The arena of a session that was just opened."""
        arena = Arena(grows=grows)
        for size in weights:
            arena.allocate(size)
        return arena

    def at(sizes: Mapping[str, int], arena: Arena | None = None) -> Run:
        arena = arena or loaded()
        before = arena.extensions
        found = simulate(graph.device_frame(rules.at(sizes)), arena)
        return replace(found, held=found.held - weights_bytes, extensions=found.extensions - before)

    runs = [
        replace(
            _planned_run(name, sizes, at(sizes)),
            input_bytes=sum(graph.copied_inputs(rules.at(sizes)).values()),
        )
        for name, sizes in wanted
    ]
    captured = request.get("captures") or {"sizes": [], "sessions": "one"}
    apart = captured["sessions"] == "each"
    captures, arena, before = [], loaded(), weights_bytes
    exact, doubling = loaded(grows=False), loaded(grows=True)
    for sizes in map(domain.complete, largest_first(captured["sizes"])):
        if apart:
            arena, before = loaded(), weights_bytes
        shape_of = rules.at(sizes)
        for each in (arena,) if apart else (arena, exact, doubling):
            graph.capture(shape_of, each)
        captures.append(
            PlannedCapture(
                sizes=sizes,
                buffers_bytes=sum(graph.copied_inputs(shape_of).values()),
                arena_bytes=arena.held - before,
            )
        )
        before = arena.held
    for planned_run in sorted(runs, key=lambda each: each.peak_bytes):
        for each in (exact, doubling):
            at(planned_run.sizes, each)
    return PlannedDevice(
        weights_bytes=weights_bytes,
        sessions=len(captures) + 1 if apart else 1,
        growth="doubling" if grows else "exact",
        at=tuple(runs),
        curve=_points({tuple(sizes.items()): at(sizes).peak for sizes in _diagonal(domain)}),
        exact_bytes=exact.held - weights_bytes,
        doubling_bytes=doubling.held - weights_bytes,
        captures=tuple(captures),
    )


def _copies(
    graph: _Graph, rules: _Rules, wanted: Sequence[Mapping[str, int]]
) -> Iterator[PlannedCopies]:
    """What is copied from one memory to the other in calls of these sizes."""
    gpu, nodes = CAPTURING.ort_name, graph.buffers.nodes
    crossing = {
        ("", gpu): graph.inputs,
        (CPU, gpu): [name for node in nodes if node.op == TO_DEVICE for name in node.makes],
        (gpu, CPU): [name for node in nodes if node.op == TO_HOST for name in node.makes],
        (gpu, ""): graph.device_outputs,
    }
    for sizes in wanted:
        for (source, target), names in crossing.items():
            if names:
                yield PlannedCopies(
                    sizes=sizes,
                    source=source,
                    target=target,
                    values=len(names),
                    bytes=sum(graph.bytes_of(name, rules.at(sizes)) for name in names),
                )


def _planned_run(fixture: str, sizes: Mapping[str, int], run: Run) -> PlannedRun:
    return PlannedRun(
        sizes=sizes,
        fixture=fixture,
        live_bytes=run.live,
        node=run.node,
        op=run.op,
        workspace_bytes=run.workspace,
        alive=tuple(AliveBuffer(value=n, bytes=size) for n, size in run.alive[:_NAMED]),
        alive_count=len(run.alive),
        asked_bytes=run.asked,
        buffer_bytes=run.buffers,
        output_bytes=run.outputs,
        pattern_bytes=run.block,
        first_bytes=run.first,
        later_bytes=run.later,
        arena_bytes=run.held,
        extensions=run.extensions,
    )


def _weight_bytes(model: onnx.ModelProto, *, external: bool) -> int:
    """Of the weights in external files, or of those in the model itself."""
    return sum(
        _tensor_bytes(tensor)
        for tensor in model.graph.initializer
        if (tensor.data_location == onnx.TensorProto.EXTERNAL) == external
    )


def _tensor_bytes(tensor: onnx.TensorProto) -> int:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    return int(entries.get("length", "0")) or len(tensor.raw_data) or tensor.ByteSize()


def _kinds(graph: _Graph) -> PlannedMemory:
    """How many values are made, and how those without a buffer of their own came to theirs."""
    count = views = in_place = reused = 0
    for each in graph.everywhere():
        root = each.buffers.root
        for node in each.buffers.nodes:
            for at, name in enumerate(node.makes):
                count += bool(name)
                if not name or root[name] == name:
                    continue
                sources = (s for s, target in node.in_place if target == at)
                over = {root.get(node.reads[s]) for s in sources if s < node.inputs}
                views += node.op in VIEWS
                in_place += root[name] in over
                reused += node.op not in VIEWS and root[name] not in over
    return PlannedMemory(values=count, views=views, in_place=in_place, reused=reused)


# Sizes that were not tried.


class _Rules:
    """The shapes of values at any sizes, from those in the calls that were made."""

    def __init__(self, points: Sequence[Mapping[str, int]], domain: Domain) -> None:
        self._points = points
        follows = [relation.dim for relation in domain.relations]
        self._dims = (*domain.dims, *follows)
        self._largest = max(range(len(points)), key=lambda at: sum(points[at].values()))
        self._fitted = cache(self._fit)

    def at(self, sizes: Mapping[str, int]) -> Callable[[_Graph, str], Shape | None]:
        """How a value's shape is found at `sizes`: as seen there, or by its rule."""
        if sizes in self._points:
            index = self._points.index(sizes)
            return lambda graph, name: graph.seen.get(name, ())[index : index + 1][0]

        def by_rule(graph: _Graph, name: str) -> Shape | None:
            seen = graph.seen[name]
            if (axes := self.axes(seen)) is not None:
                return tuple(max(axis.at(sizes), 0) for axis in axes)
            return seen[self._largest]

        return by_rule

    def axes(self, seen: Sequence[Shape | None]) -> tuple[Polynomial, ...] | None:
        """A rule for each axis; None if one has none."""
        known = [shape for shape in seen if shape is not None]
        if not known or len({len(shape) for shape in known}) != 1:
            return None
        found = []
        for axis in range(len(known[0])):
            column = tuple(None if shape is None else shape[axis] for shape in seen)
            rule = self._fitted(column)
            if rule is None:
                return None
            found.append(rule)
        return tuple(found)

    def words(self, seen: Sequence[Shape | None]) -> tuple[int | str, ...] | None:
        """The same with a name for each axis that is no number, equal ones of one name."""
        axes = self.axes(seen)
        if axes is None:
            return None
        return tuple(
            str(sorted(axis.terms.items())) if any(axis.terms) else axis.at({}) for axis in axes
        )

    def _fit(self, column: tuple[int | None, ...]) -> Polynomial | None:
        points: list[Point] = [
            (sizes, size)
            for sizes, size in zip(self._points, column, strict=True)
            if size is not None
        ]
        return fitted(points, self._dims)

    def live(self, graph: _Graph, peak: Run) -> tuple[tuple[MemoryTerm, ...], int]:
        """What is alive at the peak as terms, and how many values have no rule."""
        rules: list[Polynomial] = []
        by_name = {name: each for each in graph.everywhere() for name in each.seen}
        for name, size in peak.alive:
            each = by_name[name]
            axes = self.axes(each.seen[name])
            if axes is None:
                rules.append(Polynomial.of(size))
                continue
            product = Polynomial.of(each.widths[name])
            for axis in axes:
                product *= axis
            rules.append(product)
        found = total([*rules, self._workspace(graph, peak)])
        unknown = sum(
            self.axes(seen) is None for each in graph.everywhere() for seen in each.seen.values()
        )
        ordered = sorted(found.terms.items(), key=lambda item: (-len(item[0]), item[0]))
        return tuple(MemoryTerm(bytes=float(f), dims=dims) for dims, f in ordered), unknown

    def _workspace(self, graph: _Graph, peak: Run) -> Polynomial:
        """What the node at the peak needs while it runs; a number if it follows no rule."""
        nodes = graph.buffers.nodes
        index = next((i for i, node in enumerate(nodes) if node.name == peak.node), None)
        if index is None or not peak.workspace:
            return Polynomial.of(peak.workspace)
        frames = (graph.frame(self.at(sizes)) for sizes in self._points)
        points = [
            (sizes, sum(frame.workspace.get(index, ())))
            for sizes, frame in zip(self._points, frames, strict=True)
        ]
        return fitted(points, self._dims) or Polynomial.of(peak.workspace)


def _diagonal(domain: Domain) -> list[dict[str, int]]:
    """Sizes from the smallest to the largest, all dims growing at once."""
    found: list[dict[str, int]] = []
    if any(dim.least != dim.max for dim in domain.dims.values()):
        for step in range(_POINTS):
            sizes = _between(domain, step / (_POINTS - 1))
            if sizes not in found:
                found.append(sizes)
    return found


def _between(domain: Domain, share: float) -> dict[str, int]:
    """The sizes at a share of the way from the smallest to the largest, or the next that run."""
    sizes = {}
    for name, dim in domain.dims.items():
        size = dim.least + round((dim.max - dim.least) * share)
        sizes[name] = next((s for s in range(size, dim.max + 1) if dim.accepts(s)), dim.max)
    return domain.complete(sizes)


def _first_above(
    domain: Domain, limit: float, peak_at: Callable[[Mapping[str, int]], int]
) -> dict[str, int] | None:
    """The first sizes on that way whose peak is above `limit`; None: none, or the smallest ones."""
    low, high = 0, _STEPS
    if peak_at(_between(domain, 0)) > limit or peak_at(_between(domain, 1)) <= limit:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if peak_at(_between(domain, middle / _STEPS)) > limit:
            high = middle
        else:
            low = middle
    return _between(domain, high / _STEPS)


# What ONNX Runtime says of the graph: the graph itself, its order, and shapes.


def _profiled(
    request: Json,
    inputs: Sequence[Value],
    domain: Domain,
    calls: Sequence[tuple[str, Mapping[str, int], Mapping[str, Data]]],
    observed: Mapping[str, Path] | None = None,
) -> tuple[onnx.ModelProto, Path, list[list[_Event]], list[Any]]:
    """The graph as it is run, the folder of its weights, and the nodes of each call by `calls`."""
    spec = decode(SessionSpec, request["session"])
    weights, source = Path(request["weights"]), Path(request["model"])
    writes = spec.optimization != "disable"
    stored = onnx.load(source, load_external_data=False)
    session = create_session(
        stored.SerializeToString(),
        spec,
        providers=request["providers"],
        weights_folder=weights,
        profile=Path("plan"),
        written=Path(_WRITTEN) if writes else None,
    )
    outputs = [value.name for value in session.get_outputs()]
    model = onnx.load(_WRITTEN, load_external_data=False) if writes else stored
    known = {name: _runs(path) for name, path in (observed or {}).items() if path.exists()}
    if _has_names_of_its_own(model, stored):
        known = {}
    done = [call for call in calls if call[0] in known]
    runs = [run for name, _, _ in done for run in known[name]]
    unknown = [call for call in calls if call[0] not in known]
    for call in [*unknown, *_sliced(inputs, domain, calls)]:
        try:
            run(session, call[2], outputs)
        except AotcError:
            if len(done) < len(calls):
                raise
            # What follows in the profile is not told apart from what this call left there.
            break
        done.append(call)
    profile = Path(session.end_profiling())
    del session
    runs += _runs(profile)
    profile.unlink()
    return model, Path.cwd() if writes else weights, runs[: len(done)], done


def _has_names_of_its_own(model: onnx.ModelProto, stored: onnx.ModelProto) -> bool:
    """Whether a session of `stored` named nodes by numbers that are other ones in each session.

    So are those of the layout for the CPU's convolutions, as is their order.
    """
    known = {node.name for node in stored.graph.node}
    return any(
        _NUMBERED.search(node.name)
        for node in model.graph.node
        if node.domain == BLOCKED_DOMAIN and node.name not in known
    )


def _sliced(
    inputs: Sequence[Value],
    domain: Domain,
    calls: Sequence[tuple[str, Mapping[str, int], Mapping[str, Data]]],
) -> Iterator[tuple[str, Mapping[str, int], Mapping[str, Data]]]:
    """Further calls that tell dims apart: one dim is larger than its smallest size, the others not.

    Their arrays are cut from those of the largest call.
    """
    if len(domain.dims) < 2:
        return
    _, sizes, arrays = max(calls, key=lambda call: sum(map(values.nbytes, call[2].values())))
    smallest = domain.corner("least")
    for name, dim in domain.dims.items():
        middle = (dim.least + sizes.get(name, dim.least) + 1) // 2
        size = next((s for s in range(middle, dim.least, -1) if dim.accepts(s)), None)
        if size is None:
            continue
        free = {other: smallest[other] for other in domain.dims}
        wanted = domain.complete({**free, name: size})
        cut: dict[str, Data] = {}
        for value in inputs:
            array = arrays.get(value.name)
            shape = value.shape_at(wanted) if value.shape is not None else None
            if array is None or shape is None or not hasattr(array, "shape"):
                break
            if len(shape) != array.ndim or any(
                a > b for a, b in zip(shape, array.shape, strict=True)
            ):
                break
            cut[value.name] = array[tuple(slice(0, end) for end in shape)].copy()
        else:
            yield "", wanted, cut


def _runs(profile: Path) -> list[list[_Event]]:
    """The executed nodes of each run in a profile, in their order.

    ONNX Runtime writes each when it has ended.  Its times are in whole microseconds, in which
    several nodes may begin and end, so that they do not tell the order.
    """
    runs: list[list[_Event]] = []
    events: list[_Event] = []
    for event in read_events(profile):
        if event.category == "Session" and event.name == "model_run":
            runs.append(_as_begun(events))
            events = []
        elif event.category == "Node" and event.name.endswith(_KERNEL):
            events.append(
                _Event(
                    event.name.removesuffix(_KERNEL),
                    event.args.get("op_name", ""),
                    event.args.get("provider", ""),
                    int(event.args.get("node_index", 0)),
                    event.start,
                    event.start + event.duration,
                    tuple(
                        (_width(kind), tuple(shape))
                        for entry in event.args.get("output_type_shape", ())
                        for kind, shape in entry.items()
                    ),
                )
            )
    return runs


def _as_begun(ended: Iterable[_Event]) -> list[_Event]:
    """Executions in the order they ended, with each of control flow before those inside of it."""
    found: list[_Event] = []
    for event in ended:
        at = len(found)
        if event.op in _CONTROL_FLOW:
            while at and found[at - 1].start >= event.start:
                at -= 1
        found.insert(at, event)
    return found


def _width(kind: str) -> int:
    """Bytes of an element of a type as profiles spell it; 0 for text."""
    digits = "".join(letter for letter in kind if letter.isdigit())
    return _WIDTHS.get(kind) or (max(int(digits) // 8, 1) if digits and kind != "string" else 0)


def _name_inlined(graph: onnx.GraphProto, events: Sequence[_Event]) -> None:
    """Give nodes without a name, those of a function that was inlined, that of their execution."""
    names = {node.name for node in every_node(graph)}
    unnamed = [event for event in events if event.name not in names]
    for node in graph.node:
        if not node.name:
            at = next((i for i, each in enumerate(unnamed) if each.op == node.op_type), None)
            if at is not None:
                node.name = unnamed.pop(at).name


@record(kw_only=False)
class _Known:
    """What ONNX Runtime infers of values when it loads a graph: shapes, and types by number."""

    shapes: Mapping[str, Sequence[int | str | None]]
    types: Mapping[str, int]


def _known(model: onnx.ModelProto, weights: Path, providers: Sequence[str]) -> _Known:
    """The same of all values of a model's main graph."""
    stated = with_outputs(model, made_values(model.graph))
    session = create_session(
        stated.SerializeToString(), SHAPES_ALONE, providers=providers, weights_folder=weights
    )
    arguments = (*session.get_inputs(), *session.get_outputs())
    tensors = {each.name: values.ort_type_to_value(each) for each in arguments}
    return _Known(
        {each.name: tuple(each.shape) for each in arguments if each.shape},
        {
            name: onnx.helper.np_dtype_to_tensor_dtype(values.numpy_dtype(value.dtype))
            for name, value in tensors.items()
            if value.kind == "tensor" and value.dtype != "string"
        },
    )


def _body_model(model: onnx.ModelProto, body: onnx.GraphProto, known: _Known) -> onnx.ModelProto:
    """A body as a model of its own: what it captures are inputs, or its own copies of weights."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    captured = sorted(captured_values(body))
    found.graph.CopyFrom(body)
    for name in captured:
        if name in constants:
            found.graph.initializer.append(constants[name])
        elif name in known.types:
            shape = known.shapes.get(name)
            found.graph.input.append(
                onnx.helper.make_tensor_value_info(name, known.types[name], shape)
            )
    return found


def _read(
    model: onnx.ModelProto,
    weights: Path,
    runs: Sequence[Sequence[_Event]],
    threads: int,
    providers: Sequence[str],
    rules: _Rules,
) -> _Graph | None:
    """The main graph of `model` with what its runs said; None if its nodes have no names."""
    graph = model.graph
    protos = {node.name: node for node in graph.node}
    if len(protos) != len(graph.node):
        return None
    outer = [_outermost(events, protos) for events in runs]
    # What constants fold to runs nowhere, and one branch of two does not either.
    last = max(outer, key=len)
    order = [protos[event.name] for event, _ in last]
    widths: dict[str, int] = {}
    seen: dict[str, list[Shape | None]] = {
        name: [None] * len(runs) for node in order for name in node.output if name
    }
    for at, events in enumerate(outer):
        for event, _ in events:
            names = [name for name in protos[event.name].output if name]
            if len(names) != len(event.made):
                continue
            for name, (width, shape) in zip(names, event.made, strict=True):
                if name in seen:
                    widths[name], seen[name][at] = width, shape
    constants = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for tensor in graph.initializer:
        widths[tensor.name] = _element_bytes(tensor.data_type)
    given = {value.name for value in graph.input} | set(constants) | captured_values(graph)
    try:
        known = _known(model, weights, providers)
    except AotcError:
        if CAPTURING.ort_name not in providers:
            raise
        # A graph with the layout of a GPU may not be read again: its axes are those that were seen.
        named = {name: rules.words(shapes) for name, shapes in seen.items()}
        known = _Known({name: shape for name, shape in named.items() if shape}, {})
    fixed = {**_numbers(known.shapes), **constants}
    inner: dict[int, tuple[_Graph, ...]] = {}
    for index, (event, _) in enumerate(last):
        bodies = []
        for body in subgraphs(protos[event.name]):
            inside = [
                [e for one, below in events if one.name == event.name for e in below]
                for events in outer
            ]
            executed = _last_iterations(inside, body)
            if not any(executed):
                continue
            try:
                own = _body_model(model, body, known)
                found = _read(own, weights, executed, threads, providers, rules)
            except AotcError:
                continue
            if found is not None:
                captured = captured_values(body) & set(constants)
                bodies.append(replace(found, captured=frozenset(captured)))
        if bodies:
            inner[index] = tuple(bodies)
    outputs = frozenset(value.name for value in graph.output)
    nodes = [
        Node.of(protos[event.name], on_gpu=event.provider == CAPTURING.ort_name)
        for event, _ in last
    ]
    on_gpu = values_on_gpu(nodes, given)
    stated = Values(known.shapes, widths, frozenset(given), outputs, on_gpu)
    return _Graph(
        tuple(order),
        tuple(protos[event.name] for event, _ in sorted(last, key=lambda each: each[0].index)),
        plan_buffers(nodes, stated),
        widths,
        fixed,
        inner,
        {name: tuple(shapes) for name, shapes in seen.items()},
        threads,
        integers={
            tensor.name: _integers(tensor, weights)
            for tensor in graph.initializer
            if tensor.data_type in _EIGHT_BITS
        },
        on_gpu=on_gpu,
    )


def _outermost(
    events: Sequence[_Event], protos: Mapping[str, onnx.NodeProto]
) -> list[tuple[_Event, list[_Event]]]:
    """The executions of a graph's own nodes, each with those inside of it."""
    found: list[tuple[_Event, list[_Event]]] = []
    until = -1.0
    for event in events:
        if event.start < until and event.end <= until:
            found[-1][1].append(event)
            continue
        node = protos.get(event.name)
        if node is None or node.op_type != event.op:
            continue
        found.append((event, []))
        if subgraphs(node):
            until = event.end
    return found


def _last_iterations(
    inside: Iterable[Sequence[_Event]], body: onnx.GraphProto
) -> list[list[_Event]]:
    """Of each run, the last execution of each of a body's nodes, with what is inside of it."""
    own = {node.name for node in body.node}
    found = []
    for events in inside:
        last = {event.name: at for at, event in enumerate(events) if event.name in own}
        found.append([*events[min(last.values(), default=0) :]])
    return found


def _numbers(known: Mapping[str, Sequence[int | str | None]]) -> dict[str, Shape]:
    """The shapes that are numbers alone."""
    return {
        name: tuple(size for size in shape if isinstance(size, int))
        for name, shape in known.items()
        if all(isinstance(size, int) for size in shape)
    }


def _integers(tensor: onnx.TensorProto, weights: Path) -> Integers:
    """What a constant of 8 bits holds; of what has several dims only whether there is a sign."""
    signed = tensor.data_type == onnx.TensorProto.INT8
    if len(tensor.dims) > 1:
        return Integers(signed, zero=False)
    return Integers(signed, zero=not read_tensor(tensor, weights).any())


def _element_bytes(code: int) -> int:
    try:
        return int(onnx.helper.tensor_dtype_to_np_dtype(code).itemsize)
    except (KeyError, TypeError, ValueError):
        return 0
