"""In the worker: which nodes are to blame, by one instrumented run and some trial graphs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from aotc.blaming.badness import badness
from aotc.blaming.graph_side import Side
from aotc.blaming.node_comparison import node_errors
from aotc.blaming.smallest_set import Candidate, SmallestSet, Trial, smallest_set
from aotc.blaming.suspects import named_nodes, suspects
from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.manifest.interface import Value
from aotc.contract.manifest.variant import SessionSpec
from aotc.contract.precision.quality_gates import GateSpec
from aotc.contract.profile_terms import Tolerance
from aotc.contract.results.build_evidence import OutputError
from aotc.contract.results.nodes.blamed import OutputChange
from aotc.contract.results.nodes.node_errors import NodeErrors
from aotc.contract.shapes.padding_rules import Padding
from aotc.engine import values
from aotc.engine.job_steps import tell_steps
from aotc.engine.padding import Padder
from aotc.engine.parity import UNBOUNDED, compare
from aotc.engine.session import create_session, run
from aotc.errors import AotcError
from aotc.records import record
from aotc.stages.blaming.trial_graphs import TrialGraph, Writer

# What an instrumented run may hold of inner values at a time.
_MOST_BYTES: Final = 1 << 30


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
        candidates = suspects(graph.changed, errors.nodes)
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
                worst = max(worst, badness(error, self._tolerance, gate))
                passed &= error.passed
                if name not in largest or error.max_abs > largest[name].max_abs:
                    largest[name] = error
            if not passed and not whole:
                break
        return _Judged(badness=worst, passed=passed, outputs=largest)
