"""The nodes to blame where a variant in a lower precision is too inexact, and the texts on it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import onnx

from aotc.base.codes import REASONS
from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.graph import values
from aotc.graph.passes.same_sign_weights import exact_feature
from aotc.graph.view import covered_nodes, every_node
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.half import half_graph, half_graph_request
from aotc.pipeline.integer_products import rewrite_products
from aotc.pipeline.integers import QUANTIZED, asked_of, prepared_graph, write_quantized
from aotc.pipeline.margins import decided_outputs, original_margins, original_request
from aotc.pipeline.prove import (
    arithmetic_of,
    beside_output,
    compared_references,
    compared_runs,
    slice_request,
    tolerance_of,
)
from aotc.pipeline.types import LoweredModel, ProvenModel
from aotc.precision.blame_search import (
    Candidate,
    SmallestSet,
    Trial,
    limit_ratio,
    named_nodes,
    scored_candidates,
    smallest_set,
)
from aotc.precision.half_conversion import HALF_TYPES
from aotc.precision.node_comparison import Side, node_errors
from aotc.precision.quantized_nodes import BY_FORM, CARRIERS
from aotc.session.inference import MODEL
from aotc.session.padding import Padder
from aotc.session.parity import compare
from aotc.session.sessions import create_session, run
from aotc.session.slices import SlicePool
from aotc.session.worker import steps_of, tell_steps
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import UNBOUNDED, Blamed, NodeErrors, OutputChange, OutputError
from aotc.spec.payload import Finding, Value
from aotc.spec.precision import GateSpec, Tolerance, kept_line
from aotc.spec.providers import CPU
from aotc.spec.shapes import Padding
from aotc.spec.variant import QUANTIZE, Optimization, PassRecord, SessionSpec

# Answers that differ: by the tolerance, by padding, and by the gates of outputs.
INEXACT: Final = frozenset({"AOTC-N001", "AOTC-N007", "AOTC-N020", "AOTC-N021"})
_JOB: Final = "aotc.pipeline.blame:blame_job"
# Of the time that a step may take: what is left is for its last trial to end.
_SHARE_OF_TIME: Final = 0.8
# A fix that is longer names the table instead.
_LONGEST_LINE: Final = 2000
# Errors as large as can be told are not measured.
_UNMEASURED: Final = 1e300
# What an instrumented run may hold of inner values at a time.
_MOST_BYTES: Final = 1 << 30
# Nothing is left to compute in half precision: that is the graph in float32.
_NOTHING_LEFT = "AOTC-N012"
# What they make is the same in any type.
_READ_NO_NUMBERS = frozenset({"Shape", "Size"})
# Nothing is left to quantize: that is the graph in float32.
_NOTHING_QUANTIZED = ("AOTC-N015", "AOTC-N073")
# Precisions of which trial graphs are written.
SEARCHED: Final = frozenset({*HALF_TYPES, *QUANTIZED})
_HALF = "aotc.pipeline.blame:write_half"
_QUANTIZED = "aotc.pipeline.blame:write_quantized_trial"


def blame(lowered: LoweredModel, error: AotcError, state: BuildState) -> Blamed | None:
    """Which nodes make a variant breach its gates with `error`, within the profile's trials.

    None where the variant computes in the model's own precision, where `error` is of something
    else, where the profile wants no trials, and where the search itself fails, which the finding
    AOTC-N033 tells.  The same form of a variant is searched once, and none after such a failure.
    All searches for a variant share the profile's trials: where none is left, what was found last
    with the same nodes kept before holds for its other forms too.
    """
    plan = lowered.plan
    if plan.precision not in SEARCHED or not state.context.profile.blame.trials:
        return None
    breaches = inexact_answers(error)
    if not breaches:
        return None
    key = (f"{plan.name} {plan.precision}", lowered.model)
    if key in state.blames:
        return state.blames[key]
    earlier = [found for (name, _), found in state.blames.items() if name == key[0]]
    if None in earlier:
        return None
    if not (left := state.trials_left(key[0])):
        return next(
            (
                each
                for each in reversed(earlier)
                if each and each.keep_float32_before == plan.keep_float32
            ),
            None,
        )
    asked = trial_request(lowered, state)
    if asked is None:
        return None
    state.blames[key] = _searched(lowered, asked, breaches, left, state)
    return state.blames[key]


def precision_is_to_blame(lowered: LoweredModel, error: AotcError, state: BuildState) -> bool:
    """Whether the variant is exact enough with nodes in float32 that it computes otherwise.

    At the same level of the optimizer, so that no lower level is what it lacks.
    """
    blamed = blame(lowered, error, state)
    return blamed is not None and bool(blamed.all_pass)


def inexact_answers(error: AotcError) -> list[AotcError]:
    """The breaches among `error` and its further ones that are of how exact answers are."""
    return [each for each in error.every() if each.code in INEXACT]


def _searched(
    lowered: LoweredModel,
    asked: Json,
    breaches: Sequence[AotcError],
    trials: int,
    state: BuildState,
) -> Blamed | None:
    context = state.context
    plan = lowered.plan
    tolerance = tolerance_of(lowered, context)
    where = f"variant {plan.name}"
    folder = state.work / f"blame-{plan.name}-{len(state.blames)}"
    state.announce(f"searching for the nodes that cause the error in {where}")
    state.clock.reporter.follow("trials", steps_of(folder, "trials"))
    try:
        value = state.workers.run(
            _JOB,
            {
                **asked,
                "kept_before": [],
                "source": {
                    "model": str(lowered.analyzed.source.graph),
                    "weights": str(lowered.analyzed.source.weights),
                },
                "tolerance": encode(tolerance),
                "original": original_request(
                    lowered.analyzed.source.answering,
                    decided_outputs(lowered.analyzed.decided, arithmetic_of(lowered), tolerance),
                ),
                "gates": encode(context.profile.gates),
                "inputs": [encode(each) for each in lowered.analyzed.source.inputs],
                "padding": encode(lowered.analyzed.padding),
                **slice_request(lowered),
                "references": _references(lowered, breaches, state),
                "trials": trials,
                "seconds": context.profile.limits.seconds * _SHARE_OF_TIME,
            },
            folder=folder,
            where=where,
        ).value
    except AotcError as failure:
        state.journal.noticed((_not_searched(failure.line(), where),))
        return None
    if not value["reproduced"]:
        why = "the undivided graph passes, so something else than precision makes the error"
        state.journal.noticed((_not_searched(why, where),))
        return None
    if value["why_not"]:
        state.journal.noticed((_not_searched(value["why_not"], where),))
    return _blamed(lowered, value, asked, trials)


def _blamed(lowered: LoweredModel, value: Json, asked: Json, trials: int) -> Blamed:
    plan, found = lowered.plan, value["found"]
    kept = tuple(found["kept"])
    return Blamed(
        variant=plan.name,
        precision=plan.precision,
        keep_float32=kept,
        keep_float32_before=plan.keep_float32,
        first=value["first"],
        worst=value["worst"],
        candidates=value["candidates"],
        limit_ratio_before=found["before"],
        limit_ratio_after=found["after"],
        outputs=tuple(decode(OutputChange, each) for each in value["outputs"]),
        trials=found["trials"],
        max_trials=trials,
        minimal=found["minimal"],
        all_pass=found["all_pass"],
        search_ended=found["ended"],
        optimization=decode(SessionSpec, asked["session"]).optimization,
        profile=kept_line((*plan.keep_float32, *kept)) if kept else "",
    )


def _references(
    lowered: LoweredModel, breaches: Sequence[AotcError], state: BuildState
) -> list[Json]:
    """The fixtures that the proof compared, those that failed first."""
    runs = compared_runs(lowered.analyzed, lowered.plan)
    failed = {
        reference.name
        for reference, _ in runs
        for each in breaches
        if each.where.endswith(f"fixture {reference.name}")
    }
    return compared_references(sorted(runs, key=lambda each: each[0].name not in failed), state)


def _not_searched(why: str, where: str) -> Finding:
    return Finding(code="AOTC-N033", what=why[:500], where=where)


# What a refusal and the evidence say of the nodes to blame.


def with_nodes_to_blame(error: AotcError, lowered: LoweredModel, state: BuildState) -> AotcError:
    """The refusal of a variant, with the nodes to blame if precision makes its error.

    Its fix is then the line for the profile, where a set of nodes was found, and AOTC-N031 or N034
    among the further ones says what was tried.
    """
    breaches = inexact_answers(error)
    blamed = blame(lowered, error, state) if breaches else None
    if blamed is None or not blamed.all_pass:
        return error
    state.journal.blames(blamed)
    further = _found(blamed) if _is_useful(blamed) else _not_found(blamed)
    further.fix += _fix_of_ranges(lowered, state.context)
    rows = _changes(blamed)
    for each in breaches:
        # Where whole numbers differ, the fix says what may be stated of them, too.
        own = each.fix if each.fix != REASONS[each.code].fix else ""
        each.fix = f"{further.fix} {own}".strip()
        each.rows = each.rows or rows
    error.also = (*error.also, further)
    return error


def _fix_of_ranges(lowered: LoweredModel, context: BuildContext) -> str:
    """What to try besides where the profile states a method that cuts off values; else empty."""
    calibration = context.profile.calibration
    methods = {
        made.options.get("method")
        for made in lowered.optimized.specialized.passes
        if made.name == QUANTIZE
    }
    cuts = calibration.method == "entropy" or (
        calibration.method == "percentile" and calibration.percentile < 100
    )
    if not cuts or calibration.method not in methods:
        return ""
    return (
        f" Or try calibration: {{method: auto}} first: {calibration.method} cuts off values that "
        "answers may need."
    )


def with_evidence_of_blame(proven: ProvenModel, state: BuildState) -> ProvenModel:
    """A variant that passes as nodes to blame were kept, with what was found in its evidence."""
    for blamed in reversed(state.blames.values()):
        if (
            blamed is not None
            and blamed.variant == proven.plan.name
            and blamed.precision == proven.plan.precision
            and blamed.keep_float32
            and set(blamed.keep_float32) <= set(proven.plan.keep_float32)
        ):
            state.journal.blames(blamed)
            return replace(proven, evidence=replace(proven.evidence, blamed=blamed))
    return proven


def _is_useful(blamed: Blamed) -> bool:
    return bool(blamed.keep_float32) and len(blamed.keep_float32) < blamed.candidates


def _found(blamed: Blamed) -> AotcError:
    count = len(blamed.keep_float32)
    line = blamed.profile
    if len(line) > _LONGEST_LINE:
        line = f"keep_float32, with the {count} nodes that the report lists under `blamed`"
    least = "all of these nodes are needed" if blamed.minimal else "a smaller set may exist"
    needed = "" if count == 1 else f", {least}"
    return AotcError(
        "AOTC-N031",
        f"{blamed.precision} is too inexact in {count} of {_nodes(blamed.candidates)}",
        where=f"variant {blamed.variant}",
        expected="errors within their limits",
        found=f"{_times(blamed.limit_ratio_before)} the limit, "
        f"and {_times(blamed.limit_ratio_after)} with {'it' if count == 1 else 'them'} in float32 "
        f"({_trials(blamed)}"
        f"{needed}{_ended(blamed)})",
        fix=f"Write in the profile, or in its variant {blamed.variant}: {line}",
        rows=_nodes_table(blamed),
    )


def _not_found(blamed: Blamed) -> AotcError:
    return AotcError(
        "AOTC-N034",
        f"{blamed.precision} is too inexact, and no small set of nodes was found that causes it",
        where=f"variant {blamed.variant}",
        expected=f"a set of fewer than {blamed.candidates} nodes to keep in float32",
        found=f"{_times(blamed.limit_ratio_before)} the limit, and within it with all of them in "
        f"float32 ({_trials(blamed)}{_ended(blamed)})",
        rows=_nodes_table(blamed),
    )


def _nodes_table(blamed: Blamed) -> list[Mapping[str, str]]:
    """One row for each node that is named, and what it is."""
    roles: dict[str, list[str]] = {}
    if _is_useful(blamed):
        for name in blamed.keep_float32:
            roles.setdefault(name, []).append("to keep in float32")
    if blamed.first:
        roles.setdefault(blamed.first, []).append("first out of tolerance")
    if blamed.worst:
        roles.setdefault(blamed.worst, []).append("adds most error")
    return [{"node": name, "is": ", ".join(words)} for name, words in roles.items()]


def _changes(blamed: Blamed) -> tuple[Mapping[str, str], ...]:
    """One row for each output: its largest errors before and after."""
    return tuple(
        {
            "output": each.output,
            "largest error": _figure(each.max_abs_before),
            "relative": _figure(each.max_rel_before),
            **(
                {
                    "with nodes in float32": _figure(each.max_abs_after),
                    "relative then": _figure(each.max_rel_after),
                }
                if _is_useful(blamed)
                else {}
            ),
        }
        for each in blamed.outputs
    )


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count > 1 else ''}"


def _trials(blamed: Blamed) -> str:
    return f"{blamed.trials} trial{'s' if blamed.trials != 1 else ''}"


def _ended(blamed: Blamed) -> str:
    """Why the search found no better; empty where it tried all that it tries."""
    ends = {"complete": "", "trials": ", stopped at the limit blame.trials"}
    return ends.get(
        blamed.search_ended, ", stopped at the time limit; a faster host may find fewer nodes"
    )


def _times(ratio: float | None) -> str:
    if ratio is None or ratio > _UNMEASURED:
        return "more than 1e300 times"
    return f"{ratio:.3g} times"


def _figure(value: float | None) -> str:
    if value is None or value > _UNMEASURED:
        return "-"
    return f"{value:.3g}"


# In the worker: trials with ever other nodes in float32.


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
        self._margins = original_margins(request["original"])
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

    def _inputs(self, reference: Json, *, padded: bool = True) -> dict[str, Any]:
        inputs = {name: values.load(Path(path)) for name, path in reference["inputs"].items()}
        sizes, wanted = reference["sizes"], reference["wanted"]
        pads = padded and wanted != sizes
        return self._padder.pad(inputs, sizes, wanted).inputs if pads else inputs

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
        worst, passed, slices = 0.0, True, SlicePool()
        largest: dict[str, OutputError] = {}
        for reference in self._request["references"]:
            names = list(reference["outputs"])
            outputs = run(session, self._inputs(reference), names, refusal="AOTC-N001")
            unpadded = partial(self._inputs, reference, padded=False)
            sizes, wanted = reference["sizes"], reference["wanted"]
            if wanted != sizes:
                outputs = self._padder.crop(names, outputs, sizes)
            for name, output in zip(names, outputs, strict=True):
                golden = values.load(Path(reference["outputs"][name]))
                gate = self._gates.of_output(name)
                judge = self._margins.judge(name, reference["name"], unpadded, self._tolerance)
                beside = beside_output(self._request, reference, name, slices)
                error = compare(golden, output, self._tolerance, name, gate, beside, judge)
                worst = max(worst, limit_ratio(error, self._tolerance, gate))
                passed &= error.passed
                if name not in largest or error.max_abs > largest[name].max_abs:
                    largest[name] = error
            if not passed and not whole:
                break
        for name, found in slices.worst().items():
            gate = self._gates.of_output(name)
            if gate is None or not gate.replaces_tolerance:
                worst, passed = max(worst, found.ratio), passed and found.ratio <= 1
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
        *_, made = write_quantized(asked, kept, folder / MODEL)
    except AotcError as error:
        if error.code not in _NOTHING_QUANTIZED:
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


def trial_request(lowered: LoweredModel, state: BuildState) -> Json | None:
    """`writer`, what it is `asked`, and the session; None if the precision is the model's own.

    What the profile keeps in float32 is kept in each trial.
    """
    context = state.context
    plan = lowered.plan
    if plan.precision in HALF_TYPES:
        # Twins compute in float32, on any provider's behalf.
        return {
            "writer": _HALF,
            "asked": half_graph_request(lowered.optimized, state),
            "session": encode(SessionSpec(optimization="disable")),
            "providers": [CPU],
            "libraries": {},
        }
    if plan.precision not in QUANTIZED or not lowered.optimized.specialized.quantized:
        return None
    plugins = context.profile.plugins
    runs = not lowered.why_not_run
    return {
        "writer": _QUANTIZED,
        "asked": {
            **asked_of(lowered.optimized.specialized),
            # As they are, products of the graph itself saturate here, which the variant's do not.
            "one_sign": plan.cpu_only and not exact_feature(context.host.isa),
        },
        "session": encode(_session(lowered, context)),
        "providers": list(lowered.providers) if runs else [CPU],
        "libraries": {spec.provider: spec.library for spec in plugins.values()} if runs else {},
    }


def _session(lowered: LoweredModel, context: BuildContext) -> SessionSpec:
    """The variant's session; it optimizes at load what the variant's was optimized at before."""
    if lowered.why_not_run:
        return SessionSpec(optimization="disable")
    plan = lowered.plan
    level: Optimization = "all" if plan.optimization == "auto" else plan.optimization
    if plan.cpu_only and not exact_feature(context.host.isa):
        # Fused, integer products saturate here, which those of the variant do not.
        level = "basic"
    return replace(lowered.session, optimization=level)
