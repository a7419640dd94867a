"""The graphs and weights of all pairs of variants, compared where onnx and numpy can read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from aotc.comparing.opened_artifact import ArtifactContents
from aotc.comparing.placement_area import MatchedNodes, matched_nodes
from aotc.comparing.variant_pairs import Pair
from aotc.contract.results.diff_report import NodesDiff, WeightsDiff
from aotc.contract.results.reports import Refusal
from aotc.errors import AotcError, missing_package
from aotc.records import record, replace

if TYPE_CHECKING:
    from aotc.comparing.stored_graph import StoredGraph
    from aotc.comparing.tensor_differences import WeightReader

# Whether weights are compared: where it can be done, never, or with a refusal where it cannot.
Weights = Literal["where-possible", "never", "always"]


@record
class GraphComparison:
    """The nodes of each pair, the weights of each two models, and what could not be read."""

    nodes: tuple[NodesDiff, ...]
    weights: tuple[WeightsDiff, ...] = ()
    problems: tuple[Refusal, ...] = ()
    why_no_weights: str = ""


def by_name_alone(pairs: Sequence[Pair], why_no_weights: str = "") -> GraphComparison:
    """The nodes of each pair as the manifests list them; nothing is read."""
    nodes = tuple(matched_nodes(pair).diff() for pair in pairs)
    return GraphComparison(nodes=nodes, why_no_weights=why_no_weights)


def compare_graphs(
    a: ArtifactContents, b: ArtifactContents, pairs: Sequence[Pair], weights: Weights
) -> GraphComparison:
    """Compare the stored graphs of all pairs, and their weights unless `weights` is never.

    A model that cannot be read is a problem of the report, and its nodes are matched by name.
    Raises AOTC-I019 without onnx and numpy if `weights` is always.
    """
    try:
        from aotc.comparing.stored_graph import GraphReader
        from aotc.comparing.tensor_differences import WeightReader

        graphs = GraphReader()
    except ModuleNotFoundError as error:
        refusal = missing_package(error, "comparing weights")
        if weights == "always" or not isinstance(refusal, AotcError):
            raise refusal from None
        return by_name_alone(pairs, f"{refusal.what}: {refusal.fix}")
    with graphs, WeightReader(a, b) as reader:
        comparer = _Comparer(a, b, graphs.read, reader if weights != "never" else None)
        for pair in pairs:
            comparer.add(pair)
    return comparer.result()


class _Comparer:
    """Compares pair by pair; each model is read once, and each two models are compared once."""

    def __init__(
        self,
        a: ArtifactContents,
        b: ArtifactContents,
        read: Callable[..., StoredGraph],
        reader: WeightReader | None,
    ) -> None:
        self._sides = (a, b)
        self._read = read
        self._reader = reader
        self._graphs: dict[tuple[int, str], StoredGraph] = {}
        self._nodes: list[NodesDiff] = []
        self._weights: dict[tuple[str, str], WeightsDiff] = {}
        self._problems: list[Refusal] = []

    def add(self, pair: Pair) -> None:
        """Compare the nodes of a pair, and its weights."""
        try:
            one, other = self._graph(0, pair), self._graph(1, pair)
        except AotcError as error:
            self._problems.append(_problem(error))
            self._nodes.append(matched_nodes(pair).diff())
            return
        matched = matched_nodes(pair, one, other)
        self._nodes.append(matched.diff())
        if self._reader is not None:
            try:
                self._add_weights(self._reader, pair, matched)
            except AotcError as error:
                self._problems.append(_problem(error))

    def _graph(self, side: int, pair: Pair) -> StoredGraph:
        variant = (pair.a, pair.b)[side]
        key = side, variant.model
        if key not in self._graphs:
            self._graphs[key] = self._read(self._sides[side], variant)
        return self._graphs[key]

    def _add_weights(self, reader: WeightReader, pair: Pair, matched: MatchedNodes) -> None:
        one, other = self._graph(0, pair), self._graph(1, pair)
        models = pair.a.model, pair.b.model
        known = self._weights.get(models)
        self._weights[models] = (
            reader.compare(one, other, matched.weight_names(), pair.label)
            if known is None
            else replace(known, variants=(*known.variants, pair.label))
        )

    def result(self) -> GraphComparison:
        """Everything that was found."""
        reason = "" if self._reader is not None else "it was not asked for"
        if self._problems:
            reason = f"{self._problems[0].where}: {self._problems[0].what}"
        return GraphComparison(
            nodes=tuple(self._nodes),
            weights=_grouped(self._weights.values()),
            problems=tuple(self._problems),
            why_no_weights=reason,
        )


def _problem(error: AotcError) -> Refusal:
    return Refusal(
        code=error.code,
        what=error.what,
        where=error.where,
        expected=error.expected,
        found=error.found,
    )


def _grouped(found: Iterable[WeightsDiff]) -> tuple[WeightsDiff, ...]:
    """Variants whose weights differ in the same way, in one row."""
    groups: list[WeightsDiff] = []
    for each in found:
        for index, group in enumerate(groups):
            if replace(group, variants=each.variants) == each:
                names = (*group.variants, *each.variants)
                groups[index] = replace(group, variants=names)
                break
        else:
            groups.append(each)
    return tuple(groups)
