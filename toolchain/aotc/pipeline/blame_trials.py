"""In the worker: which nodes are to blame, by one instrumented run and some trial graphs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import onnx

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.graph import values
from aotc.graph.passes.same_sign_weights import exact_feature
from aotc.graph.view import covered_nodes, every_node
from aotc.pipeline.half import half_graph, half_graph_request
from aotc.pipeline.integer_products import rewrite_products
from aotc.pipeline.integers import QUANTIZED, asked_of, prepared_graph, write_quantized
from aotc.pipeline.options import BuildOptions
from aotc.pipeline.types import LoweredModel
from aotc.precision.blame_search import (
    Candidate,
    SmallestSet,
    Trial,
    limit_ratio,
    named_nodes,
    scored_candidates,
    smallest_set,
)
from aotc.precision.half_types import HALF_TYPES
from aotc.precision.node_comparison import Side, node_errors
from aotc.precision.quantized_nodes import BY_FORM, CARRIERS
from aotc.session.inference import MODEL
from aotc.session.padding import Padder
from aotc.session.parity import UNBOUNDED, compare
from aotc.session.sessions import create_session, run
from aotc.session.worker import tell_steps
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import NodeErrors, OutputChange, OutputError
from aotc.spec.payload import Value
from aotc.spec.precision import GateSpec, Tolerance
from aotc.spec.providers import CPU
from aotc.spec.shapes import Padding
from aotc.spec.variant import Optimization, PassRecord, SessionSpec

# What an instrumented run may hold of inner values at a time.
_MOST_BYTES: Final = 1 << 30
# Nothing is left to compute in half precision: that is the graph in float32.
_NOTHING_LEFT = "AOTC-N012"
# What they make is the same in any type.
_READ_NO_NUMBERS = frozenset({"Shape", "Size"})
# Nothing is left to quantize: that is the graph in float32.
_NOTHING_QUANTIZED = "AOTC-N015"
# Precisions of which trial graphs are written.
SEARCHED: Final = frozenset({*HALF_TYPES, *QUANTIZED})
_HALF = "aotc.pipeline.blame_trials:write_half"
_QUANTIZED = "aotc.pipeline.blame_trials:write_quantized_trial"


@record
class _Judged:
    """One run of a graph on the fixtures: the largest errors by output, and the badness."""

    badness: float
    passed: bool
    outputs: Mapping[str, OutputError]


_FAILED: Final = _Judged(badness=UNBOUNDED, passed=False, outputs={})


def blame_job(request: Json) -> Json:
    """Search in the working directory, whose trial graphs are removed again.

    Returns `found` (a `SmallestSet`), the number of `candidates`, `first` and `worst` node, the
    change of each output, and `why_not`: why the nodes could not be compared, empty if they were.
    Raises what writing or running the graph raises that is as the variant is.
    """
    job = _Job(request)
    judged, graph = job.as_built()
    answer: dict[str, Any] = {
        "candidates": len(graph.changed),
        "first": "",
        "worst": "",
        "why_not": "",
        "found": None,
        "outputs": [],
        "reproduced": not judged.passed,
    }
    if judged.passed:
        job.remove_last()
        return answer
    try:
        errors = job.node_errors(graph)
        named = named_nodes(graph.changed, errors)
        answer |= {"first": named[0], "worst": named[1]}
        candidates = scored_candidates(graph.changed, errors.nodes)
    except AotcError as error:
        answer["why_not"] = error.line()
        candidates = [Candidate(name, 0.0) for name in graph.changed]
    job.remove_last()
    found = job.search(candidates, judged.badness)
    answer["found"] = encode(found)
    after = job.outputs_of(frozenset(found.kept)) if found.kept else {}
    answer["outputs"] = [encode(_change(before, after)) for before in judged.outputs.values()]
    return answer


def _change(before: OutputError, after: Mapping[str, OutputError]) -> OutputChange:
    then = after.get(before.output)
    return OutputChange(
        output=before.output,
        max_abs_before=before.max_abs,
        max_rel_before=before.max_rel,
        max_abs_after=then.max_abs if then is not None else None,
        max_rel_after=then.max_rel if then is not None else None,
    )


class _Job:
    """One variant, its limits, and the fixtures that it is run on."""

    def __init__(self, request: Json) -> None:
        module, _, name = request["writer"].partition(":")
        self._writer: Writer = getattr(import_module(module), name)
        self._request = request
        self._already = frozenset(request["kept_before"])
        self._spec = decode(SessionSpec, request["session"])
        self._libraries = {name: Path(path) for name, path in request["libraries"].items()}
        self._tolerance = decode(Tolerance, request["tolerance"])
        self._gates = decode(GateSpec, request["gates"])
        padding = decode(Padding, request["padding"]) if request["padding"] else None
        self._padder = Padder([decode(Value, item) for item in request["inputs"]], padding)
        self._outputs: dict[frozenset[str], Mapping[str, OutputError]] = {}
        self._graphs = 0
        self._candidates: frozenset[str] = frozenset()
        self._ends_at: float = time.monotonic() + request["seconds"]

    def as_built(self) -> tuple[_Judged, TrialGraph]:
        """The variant as it is, judged on all fixtures, and its graph."""
        graph = self._write(frozenset())
        self._candidates = frozenset(graph.changed)
        return self._judge(graph, whole=True), graph

    def node_errors(self, graph: TrialGraph) -> NodeErrors:
        """The errors inside of the variant on the first fixture, which fails if one does."""
        source = self._request["source"]
        reference = self._request["references"][0]
        return node_errors(
            Side(model=Path(source["model"]), weights=Path(source["weights"])),
            Side(
                model=graph.model,
                weights=graph.weights,
                session=self._spec,
                providers=tuple(self._request["providers"]),
                libraries=self._libraries,
            ),
            self._inputs(reference),
            self._tolerance,
            fixture=reference["name"],
            most_bytes=_MOST_BYTES,
            work=Path(),
        )

    def search(self, candidates: Sequence[Candidate], before: float) -> SmallestSet:
        """The smallest set, within the trials and the seconds of the request."""
        most = self._request["trials"]
        made = 0

        def trial(kept: frozenset[str]) -> Trial:
            nonlocal made
            tell_steps(made, most)
            made += 1
            judged = self._tried(kept)
            return Trial(judged.passed, judged.badness)

        return smallest_set(
            candidates, trial, before=before, trials=most, may_go_on=self._has_time()
        )

    def outputs_of(self, kept: frozenset[str]) -> Mapping[str, OutputError]:
        """The largest errors by output of a set that was tried."""
        return self._outputs[kept]

    def remove_last(self) -> None:
        """Remove the last graph, which may be as large as the model."""
        shutil.rmtree(self._folder(), ignore_errors=True)

    def _has_time(self) -> Callable[[], bool]:
        """Whether another trial as long as the longest one would end in time."""
        longest, started = 0.0, time.monotonic()

        def may_go_on() -> bool:
            nonlocal longest, started
            now = time.monotonic()
            longest, started = max(longest, now - started), now
            return now + longest <= self._ends_at

        return may_go_on

    def _tried(self, kept: frozenset[str]) -> _Judged:
        try:
            graph = self._write(kept)
            # Where these few leave nothing to gain by the rest, a build would refuse them.
            is_useless = not graph.changed and kept != self._candidates
            judged = _FAILED if is_useless else self._judge(graph, whole=False)
        except AotcError:
            # A graph that cannot be made or run with these kept is no answer; others may be.
            judged = _FAILED
        finally:
            self.remove_last()
        self._outputs[kept] = judged.outputs
        return judged

    def _folder(self) -> Path:
        return Path(f"graph-{self._graphs}")

    def _write(self, kept: frozenset[str]) -> TrialGraph:
        self._graphs += 1
        self._folder().mkdir()
        return self._writer(self._request["asked"], self._already | kept, self._folder())

    def _inputs(self, reference: Json) -> dict[str, Any]:
        inputs = {name: values.load(Path(path)) for name, path in reference["inputs"].items()}
        sizes, wanted = reference["sizes"], reference["wanted"]
        return self._padder.pad(inputs, sizes, wanted).inputs if wanted != sizes else inputs

    def _judge(self, graph: TrialGraph, *, whole: bool) -> _Judged:
        """Run the fixtures, those that failed before first; unless `whole`, until one fails."""
        session = create_session(
            graph.model.read_bytes(),
            self._spec,
            providers=self._request["providers"],
            weights_folder=graph.weights,
            context_path=graph.model,
            libraries=self._libraries,
            compiles=True,
        )
        worst, passed = 0.0, True
        largest: dict[str, OutputError] = {}
        for reference in self._request["references"]:
            names = list(reference["outputs"])
            outputs = run(session, self._inputs(reference), names, refusal="AOTC-N001")
            sizes, wanted = reference["sizes"], reference["wanted"]
            if wanted != sizes:
                outputs = self._padder.crop(names, outputs, sizes)
            for name, output in zip(names, outputs, strict=True):
                golden = values.load(Path(reference["outputs"][name]))
                gate = self._gates.of_output(name)
                error = compare(golden, output, self._tolerance, name, gate)
                worst = max(worst, limit_ratio(error, self._tolerance, gate))
                passed &= error.passed
                if name not in largest or error.max_abs > largest[name].max_abs:
                    largest[name] = error
            if not passed and not whole:
                break
        return _Judged(badness=worst, passed=passed, outputs=largest)


def write_half(asked: Json, kept: frozenset[str], folder: Path) -> TrialGraph:
    """In the worker: the twin of a variant in half precision, on the CPU."""
    weights = Path(asked["weights"])
    source = onnx.load(asked["source"], load_external_data=False).graph
    before = onnx.load(asked["graph"], load_external_data=False)
    try:
        path, changing = half_graph(asked, kept, folder)
    except AotcError as error:
        if error.code != _NOTHING_LEFT:
            raise
        return TrialGraph(model=Path(asked["graph"]).resolve(), weights=weights, changed=())
    computing = [
        node
        for node in every_node(before)
        if node.name in changing and node.op_type not in _READ_NO_NUMBERS
    ]
    changed = changed_nodes(source, before.graph, computing, not_these=kept)
    return TrialGraph(model=path.resolve(), weights=weights, changed=changed)


def write_quantized_trial(asked: Json, kept: frozenset[str], folder: Path) -> TrialGraph:
    """In the worker: the variant quantized as it is, but for `kept`."""
    prepared = prepared_graph(asked)
    try:
        made = write_quantized(asked, kept, folder / MODEL)
    except AotcError as error:
        if error.code != _NOTHING_QUANTIZED:
            raise
        return TrialGraph(model=prepared.resolve(), weights=prepared.parent.resolve(), changed=())
    if asked["one_sign"]:
        _write_in_one_sign(folder)
    return TrialGraph(
        model=(folder / MODEL).resolve(),
        weights=folder.resolve(),
        changed=_changed(asked, prepared, made, kept),
    )


def _write_in_one_sign(folder: Path) -> None:
    """Rewrite integer products to operands of one sign, which are exact on every CPU."""
    model = onnx.load(folder / MODEL, load_external_data=False)
    _, count = rewrite_products(model, folder)
    if count:
        (folder / MODEL).write_bytes(model.SerializeToString())


def _changed(
    asked: Json, prepared: Path, made: PassRecord, kept: frozenset[str]
) -> tuple[str, ...]:
    """What is quantized; what only carries integers from one such node to the next is not."""
    source = onnx.load(asked["source"], load_external_data=False)
    model = onnx.load(prepared, load_external_data=False)
    wanted = BY_FORM[asked["form"]]
    operators = wanted.intersection(asked["quantization"]["operators"] or wanted) - CARRIERS
    computing = [node for node in every_node(model) if node.op_type in operators]
    left = {*made.kept, *asked["kept"], *kept}
    return changed_nodes(source.graph, model.graph, computing, not_these=left)


@record
class TrialGraph:
    """One graph on disk, with the folder of its external data.

    `changed` are the nodes of the imported graph, by name and in its order, that compute in the
    lower precision in it: those that can be kept besides.  Without any it is the graph in float32.
    """

    model: Path
    weights: Path
    changed: tuple[str, ...]


# Writes the graph in which the named nodes of the imported graph stay in float32, into a folder.
Writer = Callable[[Json, frozenset[str], Path], TrialGraph]


def changed_nodes(
    source: onnx.GraphProto,
    rewritten: onnx.GraphProto,
    changed: Iterable[onnx.NodeProto],
    *,
    not_these: Collection[str] = (),
) -> tuple[str, ...]:
    """The nodes of `source` that stand for the nodes `changed` of `rewritten`, one for each.

    Of several, it is the one of the same operator, else the last, which makes the value.  A node is
    left out if it stands for one of `not_these`.
    """
    covered = covered_nodes(source, rewritten)
    nodes = {node.name: (index, node.op_type) for index, node in enumerate(every_node(source))}
    left = frozenset(not_these)
    found = set()
    for node in changed:
        names = covered.get(node.name, ())
        if names and not left.intersection(names):
            alike = [name for name in names if nodes[name][1] == node.op_type]
            found.add((alike or names)[-1])
    return tuple(sorted(found, key=lambda name: nodes[name][0]))


def trial_request(lowered: LoweredModel, options: BuildOptions) -> Json | None:
    """`writer`, what it is `asked`, and the session; None if the precision is the model's own.

    What the profile keeps in float32 is kept in each trial.
    """
    plan = lowered.plan
    if plan.precision in HALF_TYPES:
        # Twins compute in float32, on any provider's behalf.
        return {
            "writer": _HALF,
            "asked": half_graph_request(lowered.optimized, options),
            "session": encode(SessionSpec(optimization="disable")),
            "providers": [CPU],
            "libraries": {},
        }
    if plan.precision not in QUANTIZED or not lowered.optimized.specialized.quantized:
        return None
    plugins = options.profile.plugins
    runs = not lowered.why_not_run
    return {
        "writer": _QUANTIZED,
        "asked": {
            **asked_of(lowered.optimized.specialized),
            # As they are, products of the graph itself saturate here, which the variant's do not.
            "one_sign": plan.cpu_only and not exact_feature(options.host.isa),
        },
        "session": encode(_session(lowered, options)),
        "providers": list(lowered.providers) if runs else [CPU],
        "libraries": {spec.provider: spec.library for spec in plugins.values()} if runs else {},
    }


def _session(lowered: LoweredModel, options: BuildOptions) -> SessionSpec:
    """The variant's session; it optimizes at load what the variant's was optimized at before."""
    if lowered.why_not_run:
        return SessionSpec(optimization="disable")
    plan = lowered.plan
    level: Optimization = "all" if plan.optimization == "auto" else plan.optimization
    if plan.cpu_only and not exact_feature(options.host.isa):
        # Fused, integer products saturate here, which those of the variant do not.
        level = "basic"
    return replace(lowered.session, optimization=level)
