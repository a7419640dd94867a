"""The smallest part of a variant that is out of tolerance by itself, found by running parts alone.

A part reads values that variant and source both have, and makes one.  It and the source's nodes are
fed the same: the source's own values.  So a part fails for what it does, not for what it is given.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import onnx

from aotc.blaming.graph_side import Side
from aotc.blaming.matched_values import MatchedValue, Place, matched_values
from aotc.contract.known_providers import CPU
from aotc.contract.manifest.variant import Placement
from aotc.contract.operator_domains import EP_CONTEXT
from aotc.contract.profile_terms import Tolerance
from aotc.contract.results.build_evidence import OutputError
from aotc.contract.results.nodes.node_errors import NodeError, NodeErrors
from aotc.debugging.part_models import Cut, PartModel, cut, stops_of
from aotc.engine.parity import compare
from aotc.engine.placement import observe
from aotc.engine.values import Data
from aotc.errors import AotcError
from aotc.graphs.shown_values import outputs_of, with_outputs
from aotc.host.cores import usable_cores
from aotc.records import record, replace

# How many values out of tolerance are tried, each as the end of a part.
_MOST_CANDIDATES: Final = 12


@record
class FailingPart:
    """A part that fails by itself: its model, the source's, what both were fed, and their answers.

    Both models are complete, without files; `side` is how the part's session was created.
    """

    value: MatchedValue
    part: onnx.ModelProto
    reference: onnx.ModelProto
    nodes: tuple[onnx.NodeProto, ...]
    covers: tuple[str, ...]
    inputs: Mapping[str, Data]
    side: Side
    expected: Data
    found: Data
    error: OutputError
    accumulated: bool = False
    trials: int = 0


class SmallestFailing:
    """Searches one variant at one set of inputs; `variant` runs as it is, without optimization."""

    def __init__(
        self, source: Side, variant: Side, inputs: Mapping[str, Data], tolerance: Tolerance
    ) -> None:
        self._source, self._variant = source, variant
        self._inputs, self._tolerance = inputs, tolerance
        self._model, self._rewritten = source.read(), variant.read()
        matched, _ = matched_values(self._model, self._rewritten)
        self._matched = {value.name: value for value in matched}
        self._placed = _placed(variant, self._rewritten)
        self._kinds = _kinds(variant, self._rewritten, [value.place.value for value in matched])
        self.trials = 0

    def search(self, errors: NodeErrors) -> FailingPart | None:
        """The part; None if none could be run alone that fails."""
        for error in _candidates(errors):
            value = self._matched[error.value]
            found = self._trial(value, ())
            if found is not None and not found.error.passed:
                return found
        return self._range(errors)

    def _range(self, errors: NodeErrors) -> FailingPart | None:
        """The fewest nodes that end in the first value out of tolerance, and fail together.

        Nodes are taken in from the last one backwards, and their number is found by halving.
        """
        ends = [error for error in errors.nodes if not error.passed]
        last = next(
            (error for error in ends if error.node == errors.first), ends[0] if ends else None
        )
        if last is None:
            return None
        value = self._matched[last.value]
        behind = self._behind(value)
        low, high = 0, len(behind)
        best: FailingPart | None = None
        while low < high:
            middle = (low + high) // 2
            found = self._trial(value, behind[: middle + 1])
            if found is not None and not found.error.passed:
                best, high = found, middle
            else:
                low = middle + 1
        return best

    def _behind(self, value: MatchedValue) -> list[str]:
        """All matched values on which `value` depends, the nearest in the source's order first."""
        found: set[str] = set()
        pending = [value.name]
        while pending:
            for read in self._matched[pending.pop()].reads:
                if read in self._matched and read not in found:
                    found.add(read)
                    pending.append(read)
        order = {name: at for at, name in enumerate(self._matched)}
        return sorted(found, key=order.__getitem__, reverse=True)

    def _trial(self, value: MatchedValue, inner: Collection[str]) -> FailingPart | None:
        """The part that ends in `value` and holds the values `inner`; None if it cannot run."""
        stops, owners = stops_of(list(self._matched.values()), {*inner, value.name})
        theirs = cut(self._model.graph, value.name, stops)
        ours = cut(self._rewritten.graph, value.place.value, owners.keys())
        if not ours.nodes or any(node.op_type == EP_CONTEXT for node in ours.nodes):
            return None
        self.trials += 1
        try:
            return self._run(value, theirs, ours, owners, accumulated=bool(inner))
        except (AotcError, KeyError, TypeError, ValueError):
            # A part whose types or captured values cannot be stated does not stand alone.
            return None

    def _run(
        self,
        value: MatchedValue,
        theirs: Cut,
        ours: Cut,
        owners: Mapping[str, MatchedValue],
        *,
        accumulated: bool,
    ) -> FailingPart:
        reads = [owners[name].name if name in owners else name for name in ours.inputs]
        names = list(dict.fromkeys((*theirs.inputs, *reads)))
        known = self._values([*names, value.name])
        shown = known[value.name]
        reference = PartModel(self._model, self._source.weights, theirs.nodes)
        part = PartModel(self._rewritten, self._variant.weights, ours.nodes)
        for name in theirs.inputs:
            reference.given(name, known[name], None, "")
        for name, read in zip(ours.inputs, reads, strict=True):
            place = owners[name].place if name in owners else None
            part.given(read, known[read], place, self._kinds.get(name, ""))
        reference.gives(value.name, shown, Place(value.name), _same_kind(shown))
        kind = self._kinds.get(value.place.value, "")
        part.gives(value.name, shown, value.place, kind)
        models = reference.finished(), part.finished()
        given = {name: known[name] for name in names}
        expected = outputs_of(self._source.opened(models[0]), given)[value.name]
        side = self._side(ours)
        session = side.opened(models[1], records_placement=True)
        if not _placed_alike(observe(session), self._placed, {node.name for node in ours.nodes}):
            raise ValueError("the part runs on another provider than in the variant")
        found = outputs_of(session, given)[value.name]
        return FailingPart(
            value=value,
            part=models[1],
            reference=models[0],
            nodes=ours.nodes,
            covers=tuple(node.name for node in theirs.nodes),
            inputs=given,
            side=side,
            expected=expected,
            found=found,
            error=compare(expected, found, self._tolerance, value.name),
            accumulated=accumulated,
            trials=self.trials,
        )

    def _side(self, part: Cut) -> Side:
        """How a part is run: on the providers of its nodes, and with a stated number of threads."""
        variant = self._variant
        used = {self._placed.get(node.name, "") for node in part.nodes}
        session = variant.session
        providers = tuple(name for name in variant.providers if name in used or name == CPU)
        options = {
            name: stated for name, stated in session.provider_options.items() if name in providers
        }
        threads = session.threads or usable_cores() or 1
        return replace(
            variant,
            providers=providers if used - {CPU, ""} else (CPU,),
            session=replace(session, provider_options=options, threads=threads),
        )

    def _values(self, names: Sequence[str]) -> dict[str, Any]:
        """Values of the source; inputs are as given."""
        made = [name for name in names if name not in self._inputs]
        found = self._source.values(self._model, self._inputs, made) if made else {}
        return {name: found[name] if name in found else self._inputs[name] for name in names}


def _candidates(errors: NodeErrors) -> list[NodeError]:
    """Values out of tolerance: the first one, then by what their nodes add."""
    wrong = [error for error in errors.nodes if not error.passed]

    def weight(error: NodeError) -> tuple[bool, float]:
        return error.node == errors.first, math.inf if error.added is None else error.added

    return sorted(wrong, key=weight, reverse=True)[:_MOST_CANDIDATES]


def _kinds(side: Side, model: onnx.ModelProto, names: Collection[str]) -> dict[str, str]:
    """Element types of tensors of a variant, by value, in ONNX Runtime's words."""
    described = side.opened(with_outputs(model, names), computes=False).get_outputs()
    return {
        value.name: value.type.removeprefix("tensor(").removesuffix(")")
        for value in described
        if value.type.startswith("tensor(")
    }


def _placed(side: Side, model: onnx.ModelProto) -> dict[str, str]:
    """The provider of each node that ONNX Runtime keeps, by the node's name."""
    seen = observe(side.opened(model, computes=False, records_placement=True))
    return {node.name: node.provider for node in seen.nodes if node.name}


def _placed_alike(part: Placement, placed: Mapping[str, str], names: Collection[str]) -> bool:
    return all(
        placed.get(node.name, node.provider) == node.provider
        for node in part.nodes
        if node.name in names
    )


def _same_kind(data: Data) -> str:
    return {"float32": "float", "float64": "double"}.get(str(data.dtype.name), str(data.dtype.name))
